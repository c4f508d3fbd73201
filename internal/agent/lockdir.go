package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeSharedDir makes a directory to which containers of any user can write. Only the agent's user can enter its parent
// directory. So other users of the host cannot run a set-user-ID program that a container creates in the shared
// directory. If one of the directories exists already, the agent's user must own it.
func makeSharedDir(path string) error {
	above := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(above), 0o755); err != nil {
		return fmt.Errorf("make the parent directory of %s (hooks.gpu.hamiLock): %w", above, err)
	}
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{above, 0o700}, {path, 0o777}} {
		if err := makeOwnedDir(d.path, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// makeOwnedDir makes a directory that the agent's user owns, with exactly the given mode.
func makeOwnedDir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open directory %s, which must be a directory and no symbolic link: %w", path, err)
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return fmt.Errorf("read the owner and mode of directory %s: %w", path, err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s does not belong to the agent's user: remove it, or set another directory in hooks.gpu.hamiLock", path)
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	if err := d.Chmod(mode); err != nil { // the umask may have removed some bits
		return fmt.Errorf("set mode %o of directory %s: %w", mode, path, err)
	}
	return nil
}
