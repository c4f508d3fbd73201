package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

const mount = "/sys/fs/cgroup"

// ownGroup makes a cgroup of this test alone in the host's version 1 hierarchies
// and returns its path in them. It skips where the host has none to offer.
func ownGroup(tb testing.TB) (*Real, string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("SKIPPED: comparing with the kernel needs root")
	}
	real, err := OpenRoot(mount)
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	tb.Cleanup(func() { real.Close() })
	if v, err := Detect(real); err != nil || v != V1 {
		tb.Skipf("SKIPPED: the fake is compared with cgroup v1, this host has %v (%v)", v, err)
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

// TestFakeAgainstKernel makes the same writes to the fake and to this host's
// kernel and compares errno and what is then shown.
func TestFakeAgainstKernel(t *testing.T) {
	real, name := ownGroup(t)
	read := func(file string) string {
		b, err := real.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	fake, err := NewFake(V1, read("cpuset/cpuset.cpus"), read("cpuset/cpuset.mems"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{name, name + "/a"} {
		if err := fake.Mkdir(d); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(script [][2]string) {
		t.Helper()
		for _, w := range script {
			file := strings.Replace(w[0], "/", "/"+name+"/", 1)
			same(t, file, w[1], real, fake)
		}
	}
	compare(cpusetScript(fake.cpus, fake.mems))
	compare(cpuScript)
	compare(memoryScript)

	task := exec.Command("sleep", "60")
	if err := task.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = task.Process.Kill()
		_ = task.Wait()
	}()
	procs := filepath.Join(mount, "cpuset", name, "a", "cgroup.procs")
	if err := os.WriteFile(procs, fmt.Append(nil, task.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	if err := fake.SetTasks(name+"/a", 1); err != nil {
		t.Fatal(err)
	}
	compare([][2]string{{"cpuset/a/cpuset.cpus", "\n"}, {"cpuset/a/cpuset.mems", "\n"}, {"cpuset/a/cpuset.cpus", "0"}})
}

func same(t *testing.T, file, value string, real, fake FS) {
	t.Helper()
	errReal, errFake := real.WriteFile(file, []byte(value)), fake.WriteFile(file, []byte(value))
	var a, b syscall.Errno
	errors.As(errReal, &a)
	errors.As(errFake, &b)
	if a != b {
		t.Errorf("write %s %q: kernel %v, fake %v", file, value, errReal, errFake)
	}
	gotReal, errReal := real.ReadFile(file)
	gotFake, errFake := fake.ReadFile(file)
	if string(gotReal) != string(gotFake) || (errReal == nil) != (errFake == nil) {
		t.Errorf("after write %s %q: kernel shows %q, %v, fake %q, %v", file, value, gotReal, errReal, gotFake, errFake)
	}
}

func cpusetScript(cpus, mems IDs) [][2]string {
	all, last := cpus.String(), fmt.Sprint(cpus.max())
	return [][2]string{
		{"cpuset/a/cpuset.cpus", "0"}, // the parent is empty
		{"cpuset/cpuset.cpus", ""},
		{"cpuset/cpuset.cpus", all},
		{"cpuset/cpuset.cpus", "4000"},
		{"cpuset/cpuset.cpus", "99999"},
		{"cpuset/cpuset.cpus", "abc"},
		{"cpuset/cpuset.cpus", "1-0"},
		{"cpuset/cpuset.cpus", " 0 ,, " + last + " "},
		{"cpuset/cpuset.cpus", "0\n1\n"},
		{"cpuset/cpuset.cpus", all + "\n"},
		{"cpuset/cpuset.mems", mems.String()},
		{"cpuset/cpuset.mems", "5000"},
		{"cpuset/cpuset.mems", fmt.Sprint(mems.max() + 1)},
		{"cpuset/a/cpuset.mems", mems.String()},
		{"cpuset/a/cpuset.cpus", all},
		{"cpuset/cpuset.cpus", "0"}, // a child has more, where there are two CPUs
		{"cpuset/a/cpuset.cpus", "0"},
		{"cpuset/cpuset.cpus", "0"},
		{"cpuset/a/cpuset.cpus", last}, // the parent has less
		{"cpuset/cpuset.cpus", "\n"},
		{"cpuset/a/cpuset.cpus", "\n"},
		{"cpuset/a/cpuset.effective_cpus", "0"},
		{"cpuset/a/cpuset.cpus", "0"},
		{"cpuset/a/cpuset.nothing", "0"},
		{"cpuset/none/cpuset.cpus", "0"},
		{"cpuset/cpuset.cpus", all},
	}
}

var cpuScript = [][2]string{
	{"cpu/cpu.shares", "0"}, {"cpu/cpu.shares", "1"}, {"cpu/cpu.shares", "262145"}, {"cpu/cpu.shares", "-1"},
	{"cpu/cpu.shares", "abc"}, {"cpu/cpu.shares", "0x10"}, {"cpu/cpu.shares", "010"}, {"cpu/cpu.shares", "1_0"},
	{"cpu/cpu.shares", "18446744073709551616"}, {"cpu/cpu.shares", "2048\n"}, {"cpu/cpu.shares", "+7"},
	{"cpu/cpu.shares", ""}, {"cpu/cpu.shares", "1000"},
	{"cpu/cpu.cfs_quota_us", "-1"}, {"cpu/cpu.cfs_quota_us", "-2"}, {"cpu/cpu.cfs_quota_us", "0"},
	{"cpu/cpu.cfs_quota_us", "999"}, {"cpu/cpu.cfs_quota_us", "1000"}, {"cpu/cpu.cfs_quota_us", "max"},
	{"cpu/cpu.cfs_quota_us", "17592186044416"}, {"cpu/cpu.cfs_quota_us", "9223372036854775808"},
	{"cpu/cpu.cfs_quota_us", "100000"},
	{"cpu/cpu.cfs_period_us", "0"}, {"cpu/cpu.cfs_period_us", "999"}, {"cpu/cpu.cfs_period_us", "1000"},
	{"cpu/cpu.cfs_period_us", "1000000"}, {"cpu/cpu.cfs_period_us", "1000001"}, {"cpu/cpu.cfs_period_us", "-1"},
	{"cpu/cpu.cfs_period_us", "100000"},
	{"cpu/a/cpu.cfs_quota_us", "100001"}, {"cpu/a/cpu.cfs_quota_us", "100000"}, {"cpu/cpu.cfs_quota_us", "99999"},
	{"cpu/cpu.cfs_quota_us", "200000"}, {"cpu/a/cpu.cfs_quota_us", "200000"}, {"cpu/cpu.cfs_period_us", "200000"},
	{"cpu/a/cpu.cfs_period_us", "200000"}, {"cpu/a/cpu.cfs_period_us", "50000"}, {"cpu/a/cpu.cfs_quota_us", "-1"},
	{"cpu/cpu.cfs_burst_us", "200001"}, {"cpu/cpu.cfs_burst_us", "200000"}, {"cpu/cpu.cfs_quota_us", "100000"},
	{"cpu/cpu.cfs_quota_us", "-1"}, {"cpu/cpu.cfs_burst_us", "-1"}, {"cpu/cpu.cfs_burst_us", "0"},
	{"cpu/cpu.cfs_burst_us", "5"}, {"cpu/cpu.cfs_quota_us", "100000"},
	{"cpu/cpu.idle", "2"}, {"cpu/cpu.idle", "1"}, {"cpu/cpu.shares", "300"}, {"cpu/cpu.idle", "1"},
	{"cpu/cpu.idle", "0"}, {"cpu/cpu.shares", ""}, {"cpu/cpu.shares", "300"}, {"cpu/cpu.idle", "0"}, {"cpu/cpu.shares", ""},
}

// memoryScript keeps away from limits a new cgroup's few pages could exceed.
var memoryScript = [][2]string{
	{"memory/memory.limit_in_bytes", "-1"}, {"memory/memory.limit_in_bytes", "64M"},
	{"memory/memory.limit_in_bytes", "67108865"}, {"memory/memory.limit_in_bytes", "1G"},
	{"memory/memory.limit_in_bytes", "9223372036854775807"}, {"memory/memory.limit_in_bytes", "9223372036854775808"},
	{"memory/memory.limit_in_bytes", "-2"}, {"memory/memory.limit_in_bytes", "abc"}, {"memory/memory.limit_in_bytes", "max"},
	{"memory/memory.limit_in_bytes", "64M\n"}, {"memory/a/memory.limit_in_bytes", "128M"},
	{"memory/memory.memsw.limit_in_bytes", "32M"}, {"memory/memory.memsw.limit_in_bytes", "128M"},
	{"memory/memory.limit_in_bytes", "256M"}, {"memory/memory.memsw.limit_in_bytes", "-1"},
	{"memory/memory.limit_in_bytes", "256M"},
}

// TestRealTree drives the kernel through Tree and sees that nothing leaves it.
func TestRealTree(t *testing.T) {
	real, name := ownGroup(t)
	tree, err := Open(real)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(name, lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0"}); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.ParentCPUs(name); err != nil || got != "0" {
		t.Errorf("ParentCPUs: %q, %v", got, err)
	}
	if got, err := tree.Children(name, "cpu"); err != nil || strings.Join(got, " ") != "a" {
		t.Errorf("Children: %q, %v", got, err)
	}
	if !tree.Exists(name, "cpuset") || tree.Exists(name+"/b", "cpuset") {
		t.Error("Exists is wrong")
	}
	if _, err := tree.Read(name+"/b", lifecycle.CPUQuota, ""); !Gone(err) {
		t.Errorf("missing cgroup: %v", err)
	}
}

// TestRealStaysInside tries both ways to open files: openat2, and os.Root, which
// is all that older kernels and strict seccomp filters leave.
func TestRealStaysInside(t *testing.T) {
	for name, beneath := range map[string]bool{"openat2": true, "os.Root": false} {
		t.Run(name, func(t *testing.T) { staysInside(t, beneath) })
	}
}

func staysInside(t *testing.T, beneath bool) {
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
	real.beneath = beneath
	for _, p := range []string{"absolute/secret", "relative/secret", "../x", filepath.Join(outside, "secret")} {
		if _, err := real.ReadFile(p); err == nil {
			t.Errorf("read %s", p)
		}
		if err := real.WriteFile(p, []byte("y")); err == nil {
			t.Errorf("wrote %s", p)
		}
	}
	for _, p := range []string{"absolute", "relative", "..", outside, "cpu/pod/cpu.shares", "none"} {
		if real.IsDir(p) {
			t.Errorf("%s is a directory inside", p)
		}
	}
	for _, p := range []string{".", "cpu", "cpu/pod"} {
		if !real.IsDir(p) {
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
