package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// makeShared makes a directory that containers of any user write to, inside one
// that nobody else on the host can enter. So no process outside of containers
// reaches a set-user-ID program or a link that a container puts there. An existing
// directory must be ours: with another one at this path, containers could write
// elsewhere.
func makeShared(path string) error {
	above := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(above), 0o755); err != nil {
		return fmt.Errorf("make the directory above %s: %w", above, err)
	}
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{above, 0o700}, {path, 0o777}} {
		if err := makeOwned(d.path, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// makeOwned makes a directory of our user with exactly that mode.
func makeOwned(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	d, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open directory %s, which must not be a link or file: %w", path, err)
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return fmt.Errorf("read directory %s: %w", path, err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s does not belong to the agent's user: remove it, or name another in hooks.gpu.hamiLock", path)
	}
	if info.Mode().Perm() == mode {
		return nil
	}
	if err := d.Chmod(mode); err != nil { // the umask may have removed some bits
		return fmt.Errorf("set mode %o of directory %s: %w", mode, path, err)
	}
	return nil
}
