package resctrl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// FS is a tree of resctrl files. Paths are relative to its root.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data in one write. It does not create a missing file.
	WriteFile(path string, data []byte) error
	// List returns the names of the directories directly below dir.
	List(dir string) ([]string, error)
	// Mkdir makes a group.
	Mkdir(dir string) error
	// Rmdir removes a group. The kernel moves the group's threads to the group above.
	Rmdir(dir string) error
}

// DirFS is the machine's resctrl tree, usually /sys/fs/resctrl. A path with ".." or a symbolic link cannot leave the
// tree.
type DirFS struct{ root *os.Root }

// OpenRoot opens the tree at dir. It does not check whether resctrl is mounted there.
func OpenRoot(dir string) (*DirFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open resctrl: %w", err)
	}
	return &DirFS{root: root}, nil
}

// Close closes the tree.
func (r *DirFS) Close() error { return r.root.Close() }

// maxFileBytes is how many bytes ReadFile reads at most. The longest file is a list of all threads of the node.
const maxFileBytes = 4 << 20

// ReadFile returns a file's text.
func (r *DirFS) ReadFile(path string) ([]byte, error) {
	f, err := r.root.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes))
}

// WriteFile writes data in one write.
func (r *DirFS) WriteFile(path string, data []byte) error {
	f, err := r.root.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// List returns the names of the directories directly below dir, sorted.
func (r *DirFS) List(dir string) ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Mkdir makes a group.
func (r *DirFS) Mkdir(dir string) error { return r.root.Mkdir(dir, 0o755) }

// Rmdir removes a group.
func (r *DirFS) Rmdir(dir string) error { return r.root.Remove(dir) }
