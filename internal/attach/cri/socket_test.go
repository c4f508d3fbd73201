package cri_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/trimtab/trimtab/internal/attach/cri"
)

// TestSocketMode: the sockets for kubelets and proxies are never accessible to other users, not even
// between their creation and a chmod. With a umask of 0, inotify would report such a chmod.
func TestSocketMode(t *testing.T) {
	for name, hooked := range map[string]bool{"proxy": false, "hook server": true} {
		t.Run(name, func(t *testing.T) {
			g := &rig{t: t, dir: t.TempDir(), h: newHandler()}
			g.runtime = startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
			w, err := fsnotify.NewWatcher()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if err := w.Add(g.dir); err != nil {
				t.Fatal(err)
			}
			old := syscall.Umask(0)
			defer syscall.Umask(old)
			if hooked {
				o := g.options(false)
				o.Socket, o.Hooks = "", &cri.HookService{Socket: g.socket()}
				g.attachWith(o)
			} else {
				g.attach(false)
			}
			if info, err := os.Lstat(g.socket()); err != nil || info.Mode() != os.ModeSocket|0o660 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if err := os.Mkdir(filepath.Join(g.dir, "end"), 0o700); err != nil {
				t.Fatal(err)
			}
			for ev := range w.Events {
				if filepath.Base(ev.Name) == "end" {
					break
				}
				if ev.Has(fsnotify.Chmod) {
					t.Errorf("it had another mode before: %v", ev)
				}
			}
		})
	}
}
