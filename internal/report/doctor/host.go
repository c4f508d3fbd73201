package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

// maxRead limits how much of a file is read.
const maxRead = 4 << 20

// host is a node's file tree below a root directory. Paths are those of the node. Symbolic links stay inside the
// tree, so that a link to /run is the node's /run.
type host struct {
	root string
	// owner returns a file's owner. It is a field because tests cannot chown.
	owner func(fs.FileInfo) (uid, gid int)
}

// real returns our path of a path on the node. It does not change the parts that do not exist: the operation on the
// path then reports that.
func (h host) real(p string) (string, error) {
	at, rest, hops := "/", split(p), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		to, err := os.Readlink(filepath.Join(h.root, next))
		if err != nil { // no link, or nothing
			at = next
			continue
		}
		if hops++; hops > 40 {
			return "", &fs.PathError{Op: "follow", Path: p, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(split(to), rest...)
	}
	return filepath.Join(h.root, at), nil
}

func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

func (h host) read(p string) ([]byte, error) {
	at, err := h.real(p)
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

func (h host) stat(p string) (fs.FileInfo, error) {
	at, err := h.real(p)
	if err != nil {
		return nil, err
	}
	return os.Lstat(at)
}

// lacks reports whether none of the paths exists on the node. A path that may not be looked at may exist.
func (h host) lacks(paths ...string) bool {
	for _, p := range paths {
		if _, err := h.stat(p); p != "" && !missing(err) {
			return false
		}
	}
	return true
}

func (h host) list(p string) ([]fs.DirEntry, error) {
	at, err := h.real(p)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(at)
}

// glob returns the node's paths that match, sorted; only the last part may have
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
	sort.Strings(out)
	return out
}

// owner returns a file's owner.
func owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return -1, -1
}

// describe prints mode and owner as ls does.
func (h host) describe(info fs.FileInfo) string {
	uid, gid := h.owner(info)
	return fmt.Sprintf("%v of %d:%d", info.Mode(), uid, gid)
}
