package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tree is a root file system that is being built: its entries by absolute path. Folders above an entry need no entry of
// their own.
type tree map[string]treeEntry

// treeEntry is a file, a folder or a symbolic link.
type treeEntry struct {
	mode    fs.FileMode // with fs.ModeDir for a folder
	content []byte
	source  string // a file of the host, instead of content
	link    string // the target of a symbolic link
}

func (t tree) dir(paths ...string) {
	for _, p := range paths {
		t[p] = treeEntry{mode: fs.ModeDir | 0o755}
	}
}

func (t tree) link(at, target string) { t[at] = treeEntry{link: target} }

func (t tree) text(at, content string) { t[at] = treeEntry{mode: 0o644, content: []byte(content)} }

// program copies an executable file of the host.
func (t tree) program(at, source string) { t[at] = treeEntry{mode: 0o755, source: source} }

// embedded copies the files below root; those that begin with #! become executable.
func (t tree) embedded(files fs.FS, root string) error {
	return fs.WalkDir(files, root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, p)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(b, []byte("#!")) {
			mode = 0o755
		}
		t[strings.TrimPrefix(p, root)] = treeEntry{mode: mode, content: b}
		return nil
	})
}

// hash covers everything, including the content of source files.
func (t tree) hash() (string, error) {
	h := sha256.New()
	for _, at := range slices.Sorted(maps.Keys(t)) {
		e := t[at]
		fmt.Fprintf(h, "%s %o %q %d\n", at, e.mode, e.link, len(e.content))
		h.Write(e.content)
		if e.source == "" {
			continue
		}
		f, err := os.Open(e.source)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16], nil
}

// writeTo writes the tree below a folder.
func (t tree) writeTo(root string) error {
	for _, at := range slices.Sorted(maps.Keys(t)) {
		if err := t[at].writeTo(filepath.Join(root, at)); err != nil {
			return err
		}
	}
	return nil
}

func (e treeEntry) writeTo(to string) error {
	if e.mode.IsDir() {
		return os.MkdirAll(to, e.mode.Perm())
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if e.link != "" {
		_ = os.Remove(to)
		return os.Symlink(e.link, to)
	}
	if e.source == "" {
		return errors.Join(os.WriteFile(to, e.content, e.mode), os.Chmod(to, e.mode))
	}
	from, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, e.mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// ext4 makes a file system image of a folder without mounting anything. The file has the given size and is
// sparse.
func ext4(ctx context.Context, folder, image, size string) error {
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1,root_owner=0:0",
		"-d", folder, image, size)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w\n%s", err, out)
	}
	return nil
}

// cpio writes the tree as the archive that a kernel unpacks at its start (the "newc" format of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst).
func (t tree) cpio(w io.Writer) error {
	all := tree{}
	for at, e := range t {
		for up := path.Dir(at); up != "/"; up = path.Dir(up) {
			all[up] = treeEntry{mode: fs.ModeDir | 0o755}
		}
		all[at] = e
	}
	const isDir, isFile, isLink = 0o040000, 0o100000, 0o120000
	for i, at := range slices.Sorted(maps.Keys(all)) {
		e := all[at]
		kind, content := isFile, e.content
		switch {
		case e.mode.IsDir():
			kind = isDir
		case e.link != "":
			kind, content = isLink, []byte(e.link)
		case e.source != "":
			b, err := os.ReadFile(e.source)
			if err != nil {
				return err
			}
			content = b
		}
		if err := record(w, i+1, kind|int(e.mode.Perm()), at[1:], content); err != nil {
			return err
		}
	}
	return record(w, 0, 0, "TRAILER!!!", nil)
}

func record(w io.Writer, inode, mode int, name string, content []byte) error {
	pad := func(n int) string { return strings.Repeat("\x00", (4-n%4)%4) }
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	_, err := fmt.Fprintf(w, "%s%s\x00%s%s%s", header, name, pad(len(header)+len(name)+1), content, pad(len(content)))
	return err
}
