package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

const mount = "/sys/fs/cgroup"

// ownGroup makes a cgroup only for this test in the host's version 1 hierarchies and returns its path in
// them. It skips the test if the host has none.
func ownGroup(tb testing.TB) (*Real, string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("SKIPPED: making cgroups needs root")
	}
	real, err := OpenRoot(mount)
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	tb.Cleanup(func() { real.Close() })
	if v, err := Detect(real); err != nil || v != V1 {
		tb.Skipf("SKIPPED: this test wants cgroup v1, this host has %v (%v)", v, err)
	}
	name := fmt.Sprintf("trimtab-test-%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	for _, c := range []string{"cpu", "cpuset", "memory"} {
		for _, d := range []string{name, name + "/a"} {
			dir := filepath.Join(mount, c, d)
			if err := os.Mkdir(dir, 0o755); err != nil {
				tb.Skipf("SKIPPED: cannot make a cgroup: %v", err)
			}
			tb.Cleanup(func() {
				if err := os.Remove(dir); err != nil {
					tb.Errorf("left behind: %v", err)
				}
			})
		}
	}
	return real, name
}

// TestRealTree writes to the kernel through Tree and checks that no path leaves the tree.
func TestRealTree(t *testing.T) {
	real, name := ownGroup(t)
	tree, err := Open(real)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(name, lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0"}); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Allowed(name, lifecycle.CPUSetCPUs); err != nil || got != "0" {
		t.Errorf("ParentCPUs: %q, %v", got, err)
	}
	if got, err := tree.Children(name, "cpu"); err != nil || strings.Join(got, " ") != "a" {
		t.Errorf("Children: %q, %v", got, err)
	}
	if !tree.Exists(name, "cpuset") || tree.Exists(name+"/b", "cpuset") {
		t.Error("Exists is wrong")
	}
	if _, err := tree.Read(name+"/b", lifecycle.CPUQuota, ""); !IsNotExist(err) {
		t.Errorf("missing cgroup: %v", err)
	}
}

// TestRealStaysInside tries both ways to open files: openat2, and os.Root, which older kernels and strict
// seccomp filters need.
func TestRealStaysInside(t *testing.T) {
	for name, beneath := range map[string]bool{"openat2": true, "os.Root": false} {
		t.Run(name, func(t *testing.T) { staysInside(t, beneath) })
	}
}

func staysInside(t *testing.T, beneath bool) {
	t.Helper()
	outside, dir := t.TempDir(), t.TempDir()
	link := func(old, name string) {
		t.Helper()
		if err := os.Symlink(old, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	put := func(file, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(outside, "secret"), "x")
	put(filepath.Join(dir, "cpu,cpuacct", "pod", "cpu.shares"), "1024\n")
	link("cpu,cpuacct", "cpu")
	link(outside, "absolute")
	link("../"+filepath.Base(outside), "relative")
	real, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	real.usesOpenat2 = beneath
	for _, p := range []string{"absolute/secret", "relative/secret", "../x", filepath.Join(outside, "secret")} {
		if _, err := real.ReadFile(p); err == nil {
			t.Errorf("read %s", p)
		}
		if err := real.WriteFile(p, []byte("y")); err == nil {
			t.Errorf("wrote %s", p)
		}
	}
	for _, p := range []string{"absolute", "relative", "..", outside, "cpu/pod/cpu.shares", "none"} {
		if real.StatDir(p) == nil {
			t.Errorf("%s is a directory inside", p)
		}
	}
	for _, p := range []string{".", "cpu", "cpu/pod"} {
		if real.StatDir(p) != nil {
			t.Errorf("%s is no directory inside", p)
		}
	}
	if err := real.WriteFile("cpu/pod/new", []byte("1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was created: %v", err)
	}
	tree, err := Open(real)
	if err != nil || tree.Version != V1 {
		t.Fatalf("co-mounted controllers: %+v, %v", tree, err)
	}
	if got, err := tree.Read("pod", lifecycle.CPUShares, ""); err != nil || got != "1024" {
		t.Errorf("through the link: %q, %v", got, err)
	}
	long := strings.Repeat("0,", 5000)
	put(filepath.Join(dir, "cpu,cpuacct", "long"), long)
	if got, err := real.ReadFile("cpu/long"); err != nil || string(got) != long {
		t.Errorf("long file: %d bytes, %v", len(got), err)
	}
}
