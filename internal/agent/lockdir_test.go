package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
)

// TestLockDirectory: containers get a directory that belongs to the agent, below one that only root can
// enter.
func TestLockDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		before func(dir string) error
		why    string
	}{
		"none yet":       {func(string) error { return nil }, ""},
		"ours of before": {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "hami", "lock"), 0o700) }, ""},
		"open to all above": {func(dir string) error {
			return os.Mkdir(filepath.Join(dir, "hami"), 0o755)
		}, ""},
		"a link in its place": {func(dir string) error {
			return firstOf(os.Mkdir(filepath.Join(dir, "hami"), 0o700), os.Symlink(t.TempDir(), filepath.Join(dir, "hami", "lock")))
		}, "must be a directory and no symbolic link"},
		"a link above": {func(dir string) error { return os.Symlink(t.TempDir(), filepath.Join(dir, "hami")) }, "must be a directory and no symbolic link"},
		"a file in its place": {func(dir string) error {
			return firstOf(os.Mkdir(filepath.Join(dir, "hami"), 0o700), os.WriteFile(filepath.Join(dir, "hami", "lock"), nil, 0o600))
		}, "must be a directory and no symbolic link"},
		"another user's": {func(dir string) error {
			path := filepath.Join(dir, "hami", "lock")
			return firstOf(os.MkdirAll(path, 0o700), os.Chown(path, 12345, 12345))
		}, "does not belong to the agent's user"},
		"another user's above": {func(dir string) error {
			path := filepath.Join(dir, "hami")
			return firstOf(os.MkdirAll(path, 0o700), os.Chown(path, 12345, 12345))
		}, "does not belong to the agent's user"},
	} {
		if os.Geteuid() != 0 && strings.HasPrefix(name, "another user's") {
			continue
		}
		dir := t.TempDir()
		if err := c.before(dir); err != nil {
			t.Fatal(name, err)
		}
		want := filepath.Join(dir, "hami", "lock")
		path, why := lockOf(t, node{createsDirs: true}, hook.GPUOptions{HAMiLibrary: "/l.so", HAMiLock: want})
		if c.why != "" {
			if path != "" || !strings.Contains(why, c.why) {
				t.Errorf("%s: %q, %q, want %q", name, path, why, c.why)
			}
			continue
		}
		if path != want || why != "" {
			t.Errorf("%s: %q, %q", name, path, why)
		}
		for at, mode := range map[string]os.FileMode{want: 0o777, filepath.Dir(want): 0o700} {
			if info, err := os.Lstat(at); err != nil || info.Mode() != os.ModeDir|mode {
				t.Errorf("%s: %s: %v, %v", name, at, info.Mode(), err)
			}
		}
	}
}

// TestNoLockDirectoryUnasked: the agent makes no directory on a node without the library, and neither does
// a command that only reads.
func TestNoLockDirectoryUnasked(t *testing.T) {
	at := filepath.Join(t.TempDir(), "hami", "lock")
	if path, why := lockOf(t, node{createsDirs: true}, hook.GPUOptions{HAMiLock: at}); path+why != "" {
		t.Errorf("%q, %q", path, why)
	}
	if path, _ := lockOf(t, node{}, hook.GPUOptions{HAMiLibrary: "/l.so", HAMiLock: at}); path != at {
		t.Errorf("%q", path)
	}
	if _, err := os.Lstat(filepath.Dir(at)); err == nil {
		t.Error("it was made")
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lockOf returns the directory with which the GPU hook is made, or why there is none.
func lockOf(t *testing.T, n node, o hook.GPUOptions) (path, why string) {
	t.Helper()
	h, err := o.Make(n, nil)
	g, is := h.(hook.GPU)
	if err != nil || !is {
		t.Fatal(h, err)
	}
	return g.HAMiLock, g.NoLockReason
}
