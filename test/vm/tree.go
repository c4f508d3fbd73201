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

// tree is a root file system that is being built. It has the entries by absolute path. The directories above an entry
// need no entries of their own.
type tree map[string]treeEntry

// treeEntry is a file, a directory or a symbolic link.
type treeEntry struct {
	mode    fs.FileMode // with fs.ModeDir for a directory
	content []byte      // the content of a file, if source is ""
	source  string      // the path of a file of the host whose content the file gets
	link    string      // the target, if the entry is a symbolic link
}

// addDirs adds directories.
func (t tree) addDirs(paths ...string) {
	for _, p := range paths {
		t[p] = treeEntry{mode: fs.ModeDir | 0o755}
	}
}

// addLink adds a symbolic link.
func (t tree) addLink(at, target string) { t[at] = treeEntry{link: target} }

// addText adds a file with a content.
func (t tree) addText(at, content string) { t[at] = treeEntry{mode: 0o644, content: []byte(content)} }

// addProgram adds an executable file with the content of a file of the host.
func (t tree) addProgram(at, source string) { t[at] = treeEntry{mode: 0o755, source: source} }

// addEmbedded adds the files below the directory root in files. A file whose content begins with #! becomes executable.
func (t tree) addEmbedded(files fs.FS, root string) error {
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

// hash returns a hash of all entries, including the contents of the source files.
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

// writeTo writes the entries of the tree below a directory of the host.
func (t tree) writeTo(root string) error {
	for _, at := range slices.Sorted(maps.Keys(t)) {
		if err := t[at].writeTo(filepath.Join(root, at)); err != nil {
			return err
		}
	}
	return nil
}

// writeTo writes the entry to a path of the host.
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

// makeExt4 makes a file system image with the content of a directory, without mounting anything. The image file is sparse
// and has the given size.
func makeExt4(ctx context.Context, folder, image, size string) error {
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1,root_owner=0:0",
		"-d", folder, image, size)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w\n%s", err, out)
	}
	return nil
}

// writeCPIO writes the tree as an archive that a kernel unpacks at boot. The format is "newc" in the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst.
func (t tree) writeCPIO(w io.Writer) error {
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
		if err := writeCPIOEntry(w, i+1, kind|int(e.mode.Perm()), at[1:], content); err != nil {
			return err
		}
	}
	return writeCPIOEntry(w, 0, 0, "TRAILER!!!", nil)
}

// writeCPIOEntry writes one entry of a cpio archive.
func writeCPIOEntry(w io.Writer, inode, mode int, name string, content []byte) error {
	pad := func(n int) string { return strings.Repeat("\x00", (4-n%4)%4) }
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	_, err := fmt.Fprintf(w, "%s%s\x00%s%s%s", header, name, pad(len(header)+len(name)+1), content, pad(len(content)))
	return err
}
