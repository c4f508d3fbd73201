package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// maxRead is the largest size of a file that doctor reads, in bytes.
const maxRead = 4 << 20

// host is a node's file tree below a root directory. Its methods take paths of the node. Symbolic links stay inside the
// tree: a link to /run leads to the node's /run.
type host struct {
	root string
	// owner returns a file's owner. It is a field because tests cannot chown.
	owner func(fs.FileInfo) (uid, gid int)
}

// realPath returns the path at which this program can open a file of the node. The parameter p is the file's path on
// the node. If a part of p does not exist, realPath leaves that part as it is, so that the caller's operation on the
// path reports the error.
func (h host) realPath(p string) (string, error) { return securejoin.SecureJoin(h.root, p) }

// read returns the content of a file, which must not have more than maxRead bytes.
func (h host) read(p string) ([]byte, error) {
	at, err := h.realPath(p)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: p, Err: syscall.EISDIR}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(data) > maxRead {
		err = &fs.PathError{Op: "read", Path: p, Err: errors.New("file is too large")}
	}
	return data, err
}

// stat returns the information about a file.
func (h host) stat(p string) (fs.FileInfo, error) {
	at, err := h.realPath(p)
	if err != nil {
		return nil, err
	}
	return os.Lstat(at)
}

// noneExists reports whether none of the paths exists on the node. If doctor has no permission to look up a path,
// noneExists assumes that the path exists.
func (h host) noneExists(paths ...string) bool {
	for _, p := range paths {
		if _, err := h.stat(p); p != "" && !isMissing(err) {
			return false
		}
	}
	return true
}

// list returns the entries of a directory.
func (h host) list(p string) ([]fs.DirEntry, error) {
	at, err := h.realPath(p)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(at)
}

// glob returns the node's paths that match a pattern, sorted by name. Only the last part of the pattern may have
// wildcards.
func (h host) glob(pattern string) []string {
	dir, last := filepath.Split(pattern)
	entries, err := h.list(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if ok, err := filepath.Match(last, e.Name()); ok && err == nil {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// owner returns a file's owner.
func owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// describe formats the mode and the owner of a file.
func (h host) describe(info fs.FileInfo) string {
	uid, gid := h.owner(info)
	return fmt.Sprintf("%v owned by %d:%d", info.Mode(), uid, gid)
}
