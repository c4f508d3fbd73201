package bypass

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// noticed is a simulated tree that reports changes as inotify does.
type noticed struct {
	*kernel.Cgroups
	version cgroup.Version

	mu      sync.Mutex
	watched map[string]bool
	out     chan cgroup.Notice
	mute    bool // notices get lost
}

func newKernel(t *testing.T, v cgroup.Version) *noticed {
	t.Helper()
	f, err := kernel.NewCgroups(v, "0-7", "0")
	if err != nil {
		t.Fatal(err)
	}
	k := &noticed{Cgroups: f, version: v, watched: map[string]bool{}, out: make(chan cgroup.Notice, 1024)}
	f.OnWrite(func(file, _ string) { k.notice(cgroup.Written, file) })
	for _, dir := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		if err := f.MkdirRunc(dir); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *noticed) notice(h cgroup.Change, file string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched[path.Dir(file)] && !k.mute {
		k.out <- cgroup.Notice{Change: h, Path: file}
	}
}

// firstPID is the first process of every fake container.
const firstPID = 4242

// proc is a procfs with these processes.
func proc(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"4242/stat":    "4242 (runc:[2:INIT]) S 4240 1",
		"4241/cmdline": "runc\x00--root\x00/run/runc\x00create\x00--bundle\x00/b", "4240/cmdline": "containerd-shim\x00-namespace\x00k8s.io",
	} {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ReadFile returns the process of each container, and otherwise the tree's file.
func (k *noticed) ReadFile(file string) ([]byte, error) {
	if path.Base(file) == "cgroup.procs" {
		return fmt.Appendln(nil, firstPID), nil
	}
	return k.Cgroups.ReadFile(file)
}

// files returns the paths of a directory in all hierarchies.
func (k *noticed) files(dir string) []string {
	if k.version == cgroup.V2 {
		return []string{dir}
	}
	return []string{"cpuset/" + dir, "cpu/" + dir, "memory/" + dir}
}

func (k *noticed) mkdir(dir string) {
	if k.MkdirRunc(dir) == nil {
		for _, f := range k.files(dir) {
			k.notice(cgroup.Created, f)
		}
	}
}

func (k *noticed) rmdir(dir string) {
	if k.Rmdir(dir) == nil {
		for _, f := range k.files(dir) {
			k.notice(cgroup.Removed, f)
			k.Remove(f)
		}
	}
}

func (k *noticed) Add(dir string) error {
	if _, err := k.List(dir); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched[dir] = true
	return nil
}

func (k *noticed) Remove(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, dir)
}

func (k *noticed) Notices() <-chan cgroup.Notice { return k.out }

func (k *noticed) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched = map[string]bool{}
	return nil
}

func (k *noticed) silent(mute bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mute = mute
}
