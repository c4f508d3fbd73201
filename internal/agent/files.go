package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/statefile"
)

// The files in paths.state.
const (
	checkpointName = "checkpoint.json"
	podSpecsName   = "podspecs.json"
	grantsName     = "granted.json"
	namespacesName = "namespaces.json"
)

// directory returns a directory of state files. files makes its calls, or the disk
// if it is nil.
func directory(files func(dir string) statefile.FS, path string) *statefile.Dir {
	if files != nil {
		return statefile.New(files(path), path)
	}
	return statefile.New(statefile.Disk(path), path)
}

// stateFiles are the files in paths.state, and the key that signs them.
type stateFiles struct {
	log       *slog.Logger
	paths     config.Paths
	disk      func(dir string) statefile.FS // nil for the disk
	dir       *statefile.Dir                // paths.state; nil if nothing is kept
	key       []byte                        // the record key, once it was read
	seal      []byte                        // signs them
	returning bool                          // the key was there: an agent has run here before

	mu      sync.Mutex
	unsaved map[string]string // why a file's last save failed, by name
}

// prepare makes the state directory. It reports one that others can write to and
// uses it: its files are checked one by one.
func (s *stateFiles) prepare() error {
	path := s.paths.State
	s.dir = directory(s.disk, path)
	err := s.dir.Prepare(checkpointName, podSpecsName, grantsName, namespacesName, pluginsName, originalsName, clusterConfigName)
	if errors.Is(err, statefile.ErrUntrusted) {
		s.log.Warn("other users can remove the agent's state files", logkey.Key, "paths.state", logkey.Err, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("prepare the state directory %s (paths.state): %w", path, err)
	}
	return nil
}

// load reads a file of paths.state. The agent renames a file that it cannot read,
// or that another program may have written, and works without it: the runtime's
// records and the kubelet have more.
func (s *stateFiles) load(name string) []byte {
	if s.dir == nil {
		return nil
	}
	data, err := s.dir.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = statefile.CheckSeal(s.seal, name, data)
	}
	if err == nil && name == checkpointName {
		err = record.Check(data)
	}
	if err == nil {
		return data
	}
	file, moved := s.dir.PutAside(name)
	s.log.Warn("a state file is damaged or not the agent's own, and was renamed; only the runtime's records, the kernel and the kubelet are used",
		logkey.File, file, logkey.Err, errors.Join(err, moved))
	return nil
}

// save returns a function that replaces a file of paths.state; nil if nothing is
// kept.
func (s *stateFiles) save(name string) func([]byte) error {
	if s.dir == nil {
		return nil
	}
	return func(data []byte) error {
		err := s.dir.Write(name, statefile.Seal(s.seal, name, data))
		s.note(name, err)
		return err
	}
}

// note notes whether the last save of a file failed.
func (s *stateFiles) note(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.unsaved, name)
		return
	}
	if s.unsaved == nil {
		s.unsaved = map[string]string{}
	}
	s.unsaved[name] = err.Error()
}

// unsavedWith lists the state files that could not be written, with the reasons. originals is why
// original values are not saved.
func (s *stateFiles) unsavedWith(originals error) []string {
	if s.dir == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	if originals != nil {
		out = append(out, fmt.Sprintf("%s: %v", s.dir.Path(originalsName), originals))
	}
	for _, name := range slices.Sorted(maps.Keys(s.unsaved)) {
		out = append(out, fmt.Sprintf("%s: %s", filepath.Join(s.paths.State, name), s.unsaved[name]))
	}
	return out
}
