package hookserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/follow"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/trust"
)

const (
	// quietTime is the time for which the directory must be unchanged before the agent reads it. If the directory does
	// not stop changing, the agent reads it maxQuietWait after the first change. So a change is in force within a
	// second.
	quietTime    = 100 * time.Millisecond
	maxQuietWait = 400 * time.Millisecond
	// recheckInterval is the interval at which the agent reads the directory even without an inotify event. So the
	// agent finds a directory that was created or replaced.
	recheckInterval = 700 * time.Millisecond
	// maxFiles limits the number of files that the agent uses.
	maxFiles = 64
)

// Options are the settings of Servers. Directory and Log are required.
type Options struct {
	// Directory is the path of the directory that has one registration file for each server.
	Directory string
	// Timeout is the time that one server may take for one call.
	Timeout time.Duration
	// OwnSocket is the path of the agent's own hook socket. The agent skips a file whose remote-endpoint is this path.
	OwnSocket string
	Log       *slog.Logger
	// Recorder counts calls. If it is nil, calls are not counted.
	Recorder Recorder
	// Now returns the current time; nil means time.Now.
	Now func() time.Time
}

// Servers are the hook servers that have a registration file in one directory.
type Servers struct {
	opts    Options
	notices chan notice

	mu        sync.RWMutex // guards all fields below; never held across I/O
	files     map[string]*file
	callOrder []string // names of files, in the order in which the agent calls their servers
	err       error    // the error of the last read of the directory
}

// file is the state of one registration file in the directory. After a change of the registration file, a new file
// value replaces the old value; the old value does not change.
type file struct {
	name          string
	server        *server  // nil if the agent has no valid registration from this file
	unknownStages []string // the stages in the registration that the agent does not know and ignores
	content       string   // the content at the last read; "" if the read failed
	err           error    // why the agent does not use the file's newest content
}

// New returns the Servers of a directory, and reads no files. Run and Reload read the files.
func New(o Options) *Servers {
	if o.Recorder == nil {
		o.Recorder = NoRecorder{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OwnSocket != "" {
		o.OwnSocket = filepath.Clean(o.OwnSocket)
	}
	return &Servers{opts: o, files: map[string]*file{}, notices: make(chan notice, maxNotices)}
}

// Run watches the directory, and notifies servers of past events, until ctx ends.
func (s *Servers) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.notifyAll(ctx)
	}()
	err := follow.DirWatcher{QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheckInterval, Dirs: s.watchedDirs, Read: s.Reload}.Run(ctx)
	<-ended
	s.Close()
	return err
}

// Close closes the connections and removes all servers from s. Run calls Close before it returns.
func (s *Servers) Close() {
	s.mu.Lock()
	before := s.files
	s.files, s.callOrder = map[string]*file{}, nil
	s.mu.Unlock()
	for _, f := range before {
		if f.server != nil {
			f.server.connection.close()
		}
	}
}

// watchedDirs returns the paths to watch: the directory, and its parent, because the directory may be created later.
func (s *Servers) watchedDirs() []string {
	return []string{s.opts.Directory, filepath.Dir(s.opts.Directory)}
}

// Reload reads the files of the directory, and applies the changed files. Calls of Reload must not overlap. If the
// agent cannot read a file any more, or if the file's content is not valid, the last valid registration stays in force.
// If a file was removed, or other users may write it (see whyUntrusted), the agent no longer calls the file's server.
// If the agent cannot read the directory, all registrations stay in force. If the directory was removed, or other users
// may write it, the agent calls no server.
func (s *Servers) Reload() {
	names, err := s.listFiles()
	if err != nil && (s.err == nil || s.err.Error() != err.Error()) {
		s.opts.Log.Error("the agent cannot use some or all files in the directory of hook servers", logkey.File, s.opts.Directory, logkey.Err, err)
	}
	if refused := (*untrustedFileError)(nil); err != nil && names == nil && !errors.As(err, &refused) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		return
	}
	next := make(map[string]*file, len(names))
	for _, name := range names {
		next[name] = s.readFile(name, s.files[name])
	}
	s.mu.Lock()
	before := s.files
	s.files, s.callOrder, s.err = next, names, err
	s.mu.Unlock()
	for name, f := range before {
		if next[name] == nil {
			s.opts.Log.Info("a hook server is no longer registered: the agent does not use its file any more, and does not call the server", logkey.File, name)
		}
		if f.server != nil && (next[name] == nil || next[name].server == nil || next[name].server.connection != f.server.connection) {
			f.server.connection.close()
		}
	}
}

// listFiles returns the names of the directory's .json files, sorted, and at most maxFiles of them.
func (s *Servers) listFiles() ([]string, error) {
	dir, err := os.Stat(s.opts.Directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no server is registered
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.opts.Directory, err)
	}
	if why := whyUntrusted(dir); why != "" {
		return nil, fmt.Errorf("the agent does not use %s: %w", s.opts.Directory, &untrustedFileError{why})
	}
	entries, err := os.ReadDir(s.opts.Directory)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", s.opts.Directory, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	if len(names) > maxFiles {
		return names[:maxFiles], fmt.Errorf("%s has %d files: the agent uses only the first %d", s.opts.Directory, len(names), maxFiles)
	}
	return names, nil
}

// whyUntrusted returns the reason why a file or directory is not trusted; "" if it is trusted. Only trusted users may
// register servers, because a server can change every pod. A sticky bit does not make a file or directory trusted. On a
// file it has no effect, and in a directory it does not stop users from adding files.
func whyUntrusted(info fs.FileInfo) string {
	mode := info.Mode().Perm()
	if mode&0o002 != 0 {
		return fmt.Sprintf("every user may write it (mode %04o); run chmod o-w", mode)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && mode&0o020 != 0 && !trustedGroup(st.Gid) {
		return fmt.Sprintf("group %d may write it (mode %04o), and is not the group of root or of the agent; run chmod g-w", st.Gid, mode)
	}
	if err := trust.CheckOwner(info); err != nil {
		return err.Error()
	}
	return ""
}

func trustedGroup(gid uint32) bool { return gid == 0 || gid == uint32(os.Getegid()) }

// readFile reads the file with this name, and returns its new state. The parameter old is the state after the last
// read; nil for a new file.
func (s *Servers) readFile(name string, old *file) *file {
	f := &file{name: name}
	if old != nil {
		*f = *old
	}
	content, err := readTrustedFile(filepath.Join(s.opts.Directory, name))
	refused := (*untrustedFileError)(nil)
	switch {
	case errors.As(err, &refused):
		*f = file{name: name, err: err}
	case err != nil:
		f.err, f.content = err, ""
	case old != nil && old.content == content && content != "":
		return old
	default:
		f.content = content
		s.applyContent(f)
	}
	if f.err != nil && !errors.Is(f.err, errOwnSocket) && (old == nil || old.err == nil || old.err.Error() != f.err.Error()) {
		s.opts.Log.Error("the agent does not use the content of a hook server's file", logkey.File, name, logkey.Err, f.err)
	}
	return f
}

// applyContent parses f.content, and sets f.server if the content is valid. Otherwise it sets f.err.
func (s *Servers) applyContent(f *file) {
	r, unknownStages, err := parseRegistration([]byte(f.content))
	if err != nil {
		f.err = err
		return
	}
	if s.opts.OwnSocket != "" && samePath(r.Endpoint, s.opts.OwnSocket) {
		f.server, f.unknownStages, f.err = nil, nil, errOwnSocket
		return
	}
	f.unknownStages, f.err = unknownStages, nil
	if f.server != nil && f.server.registration.Endpoint == r.Endpoint {
		f.server = f.server.withRegistration(r) // keeps the connection, and the results of its recent calls
	} else {
		f.server = newServer(f.name, r, s.opts)
	}
	s.opts.Log.Info("hook server registered", logkey.File, f.name, logkey.Socket, r.Endpoint, logkey.Values, len(r.Stages))
}

// errOwnSocket is the error of the file that the agent itself wrote to register as a server of a runtime proxy.
var errOwnSocket = errors.New("remote-endpoint is the agent's own socket; the agent does not call itself")

// samePath reports whether two paths are equal, or lead to the same file through symbolic links.
func samePath(a, b string) bool {
	ra, erra := filepath.EvalSymlinks(a)
	rb, errb := filepath.EvalSymlinks(b)
	return a == b || erra == nil && errb == nil && ra == rb
}

// untrustedFileError is the error for a file that is not trusted.
type untrustedFileError struct{ reason string }

func (d *untrustedFileError) Error() string { return "refused: " + d.reason }

// readTrustedFile returns the content of a file. The error is an *untrustedFileError if the file is not trusted.
func readTrustedFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a named pipe must not block
	if err != nil {
		return "", fmt.Errorf("open the file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the attributes of the file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", &untrustedFileError{"it is not a regular file"}
	}
	if why := whyUntrusted(info); why != "" {
		return "", &untrustedFileError{why}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the file: %w", err)
	case len(data) > maxFileBytes:
		return "", fmt.Errorf("the file is longer than %d bytes", maxFileBytes)
	}
	return string(data), nil
}
