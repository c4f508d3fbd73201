package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sweepPatience is how long Sweep and RemoveCgroups try again before they return an error.
const sweepPatience = 15 * time.Second

// Sweep removes everything of a runtime whose files are in the directory dir and whose cgroups are below parent. It
// ends the runtime, the shims and the containers' processes. Then it removes the mounts, the cgroups and the directory.
// It returns no error if nothing of the runtime exists any more.
func Sweep(dir, parent string) error {
	if !strings.HasPrefix(dir, "/tmp/") || len(strings.Trim(parent, "/")) == 0 {
		return fmt.Errorf("cannot remove directory %q and cgroup %q: the directory must be below /tmp, and the cgroup must not be the root", dir, parent)
	}
	all, err := Hierarchies()
	if err != nil {
		return err
	}
	err = until(func() error {
		var alive []int
		for _, pid := range append(Processes(dir), members(all, parent)...) {
			if pid != os.Getpid() && pid != os.Getppid() && syscall.Kill(pid, syscall.SIGKILL) == nil {
				alive = append(alive, pid)
			}
		}
		if len(alive) > 0 {
			return fmt.Errorf("the processes %v do not end after SIGKILL", alive)
		}
		return nil
	})
	return errors.Join(err, unmount(dir), RemoveCgroups(all, parent), os.RemoveAll(dir))
}

// Processes lists the processes of a runtime: those that have a path below dir as an argument. For the runtime this is
// the path of its configuration, and for a shim the path of its socket. Processes leaves out the program reap, which
// does the cleanup.
func Processes(dir string) []int {
	return pidsWhere(func(cmdline []byte) bool {
		for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
			if bytes.HasPrefix(arg, []byte(dir+"/")) && !bytes.HasSuffix(arg, []byte("/bin/reap")) {
				return true
			}
		}
		return false
	})
}

// pidsWhere returns the ids of the processes whose command line matches. The command line of a zombie is empty.
func pidsWhere(match func(cmdline []byte) bool) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && match(cmdline) {
			found = append(found, pid)
		}
	}
	return found
}

// members returns the ids of the processes in a cgroup and its descendants, in all hierarchies.
func members(all []Hierarchy, parent string) []int {
	var found []int
	for _, h := range all {
		for _, dir := range tree(filepath.Join(h.Mount, parent)) {
			procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for line := range strings.FieldsSeq(string(procs)) {
				if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
					found = append(found, pid)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// tree lists root and all directories below root, parents first. It skips directories that vanish during the walk.
func tree(root string) []string {
	var found []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// unmount removes all mounts below dir, the newest mount first.
func unmount(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	slices.Reverse(points) // the kernel lists the oldest mount first
	for _, p := range points {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// RemoveCgroups removes a cgroup with its descendants from every hierarchy, the deepest cgroup first. It tries again
// after an error, because a cgroup stays busy for a moment after the end of its last process.
func RemoveCgroups(all []Hierarchy, parent string) error {
	return until(func() error {
		var last error
		for _, h := range all {
			dirs := tree(filepath.Join(h.Mount, parent))
			slices.Reverse(dirs)
			for _, dir := range dirs {
				if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					last = err
				}
			}
		}
		return last
	})
}

// until calls done until it returns no error, at most for sweepPatience. It returns the last error.
func until(done func() error) error {
	deadline := time.Now().Add(sweepPatience)
	for {
		err := done()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
