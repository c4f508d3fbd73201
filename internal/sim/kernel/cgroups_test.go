package kernel

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// step is one write and its expected result.
type step struct {
	path, value string
	err         syscall.Errno // 0: accepted
	shows       string        // the file's text afterwards; "" is not compared
}

func runSteps(t *testing.T, f cgroup.FS, steps []step) {
	t.Helper()
	for _, s := range steps {
		err := f.WriteFile(s.path, []byte(s.value))
		if s.err == 0 && err != nil || s.err != 0 && !errors.Is(err, s.err) {
			t.Errorf("write %s %q: %v, want errno %d", s.path, s.value, err, s.err)
		}
		if s.shows == "" {
			continue
		}
		got, err := f.ReadFile(s.path)
		if err != nil || string(got) != s.shows+"\n" {
			t.Errorf("after %s %q: shows %q, %v, want %q", s.path, s.value, got, err, s.shows)
		}
	}
}

func newFake(t *testing.T, v cgroup.Version, dirs ...string) *Cgroups {
	t.Helper()
	f, err := NewCgroups(v, "0-3", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if err := f.Mkdir(d); err != nil {
			t.Fatal(err)
		}
		if v == cgroup.V2 {
			if err := f.WriteFile(d+"/cgroup.subtree_control", []byte("+cpuset +cpu +memory")); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

func TestCgroupsV1(t *testing.T) {
	f := newFake(t, cgroup.V1, "p", "p/c")
	runSteps(t, f, []step{
		{"cpuset/p/c/cpuset.cpus", "0", syscall.EACCES, ""},
		{"cpuset/p/cpuset.cpus", "0-2", 0, "0-2"},
		{"cpuset/p/cpuset.cpus", "0-4", syscall.ERANGE, "0-2"},
		{"cpuset/p/cpuset.cpus", "x", syscall.EINVAL, "0-2"},
		{"cpuset/p/c/cpuset.cpus", "3", syscall.EACCES, ""},
		{"cpuset/p/c/cpuset.cpus", " 1 ,, 0\n3", 0, "0-1"},
		{"cpuset/p/cpuset.cpus", "0", syscall.EBUSY, "0-2"},
		{"cpuset/p/cpuset.mems", "2", syscall.EINVAL, ""},
		{"cpuset/p/cpuset.mems", "0", 0, "0"},
		{"cpuset/p/c/cpuset.mems", "0", 0, "0"},
		{"cpuset/p/c/cpuset.effective_cpus", "0", syscall.EINVAL, "0-1"},
		{"cpuset/p/none", "0", syscall.ENOENT, ""},
		{"cpuset/q/cpuset.cpus", "0", syscall.ENOENT, ""},
		// rubik.md 6.3
		{"cpu/p/cpu.cfs_quota_us", "50000", 0, "50000"},
		{"cpu/p/cpu.cfs_burst_us", "50001", syscall.EINVAL, "0"},
		{"cpu/p/cpu.cfs_burst_us", "50000", 0, "50000"},
		{"cpu/p/cpu.cfs_quota_us", "40000", syscall.EINVAL, "50000"},
		{"cpu/p/cpu.cfs_quota_us", "999", syscall.EINVAL, "50000"},
		{"cpu/p/cpu.cfs_period_us", "999", syscall.EINVAL, "100000"},
		{"cpu/p/cpu.cfs_period_us", "1000001", syscall.EINVAL, "100000"},
		{"cpu/p/c/cpu.cfs_quota_us", "50001", syscall.EINVAL, "-1"},
		{"cpu/p/c/cpu.cfs_quota_us", "50000", 0, "50000"},
		{"cpu/p/cpu.cfs_burst_us", "0", 0, "0"},
		{"cpu/p/cpu.cfs_quota_us", "49999", syscall.EINVAL, "50000"},
		{"memory/p/memory.limit_in_bytes", "1048577", 0, "1048576"},
		{"memory/p/memory.limit_in_bytes", "-1", 0, "9223372036854771712"},
		{"hugetlb/p/hugetlb.2MB.limit_in_bytes", "3145728", 0, "2097152"},
		{"hugetlb/p/hugetlb.2MB.limit_in_bytes", "x", syscall.EINVAL, "2097152"},
		{"hugetlb/p/hugetlb.2MB.limit_in_bytes", "-1", 0, "9223372036852678656"},
	})
	if err := f.SetTasks("p/c", 1); err != nil {
		t.Fatal(err)
	}
	runSteps(t, f, []step{{"cpuset/p/c/cpuset.cpus", "\n", syscall.ENOSPC, "0-1"}})
	if err := f.SetUsage("p", 1<<20); err != nil {
		t.Fatal(err)
	}
	runSteps(t, f, []step{{"memory/p/memory.limit_in_bytes", "4096", syscall.EBUSY, "9223372036854771712"}})
	if err := f.Rmdir("p"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("rmdir of a parent: %v", err)
	}
}

func TestCgroupsV2(t *testing.T) {
	f := newFake(t, cgroup.V2, "p", "p/c")
	if err := f.SetPossible("0-5"); err != nil {
		t.Fatal(err)
	}
	runSteps(t, f, []step{
		{"cpu.weight", "100", syscall.ENOENT, ""},
		{"p/cpuset.cpus", "0-1,4", 0, "0-1,4"},
		{"p/cpuset.cpus", "6", syscall.ERANGE, "0-1,4"},
		{"p/c/cpuset.cpus", "1-2", 0, "1-2"},
		{"p/c/cpuset.cpus.effective", "1", syscall.EINVAL, "1"},
		{"p/c/cpuset.cpus", "3", 0, "3"},
		{"p/c/cpuset.cpus.effective", "", 0, "0-1"},
		{"p/c/cpuset.cpus", "\n", 0, ""},
		{"p/c/cpuset.cpus.effective", "", 0, "0-1"},
		{"p/cpu.weight", "0", syscall.ERANGE, "100"},
		{"p/cpu.weight", "10001", syscall.ERANGE, "100"},
		{"p/cpu.weight", "39", 0, "39"},
		{"p/cpu.idle", "1", 0, "1"},
		{"p/cpu.weight", "40", syscall.EINVAL, "0"},
		{"p/cpu.idle", "0", 0, "0"},
		{"p/cpu.weight", "100", 0, "100"},
		{"p/cpu.max", "max", 0, "max 100000"},
		{"p/cpu.max", "50000", 0, "50000 100000"},
		{"p/cpu.max", "max 20000", 0, "max 20000"},
		{"p/cpu.max", "500 20000", syscall.EINVAL, "max 20000"},
		{"p/cpu.max", "junk", syscall.EINVAL, "max 20000"},
		{"p/cpu.max", "10000 100000", 0, "10000 100000"},
		{"p/c/cpu.max", "90000 100000", 0, "90000 100000"},
		{"p/cpu.max.burst", "10001", syscall.EINVAL, "0"},
		{"p/memory.max", "8193", 0, "8192"},
		{"p/memory.max", "max", 0, "max"},
		{"p/memory.max", "-1", syscall.EINVAL, "max"},
		{"p/memory.low", "4096", 0, "4096"},
		{"p/hugetlb.1GB.max", "1073741825", 0, "1073741824"},
		{"p/hugetlb.1GB.max", "max", 0, "max"},
		{"p/hugetlb.1GB.max", "-1", syscall.EINVAL, "max"},
	})
	if err := f.SetUsage("p/c", 1<<20); err != nil {
		t.Fatal(err)
	}
	runSteps(t, f, []step{{"p/c/memory.max", "8192", 0, "8192"}, {"p/c/memory.current", "", 0, "8192"}})
}

func TestCgroupsDirs(t *testing.T) {
	f := newFake(t, cgroup.V1)
	if err := f.Mkdir("a/b"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("mkdir without parent: %v", err)
	}
	if err := f.MkdirRunc("a/b"); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Open(f)
	if err != nil || tree.Version != cgroup.V1 {
		t.Fatalf("Open: %+v, %v", tree, err)
	}
	if got, err := tree.Effective("a/b", lifecycle.CPUSetCPUs); err != nil || got != "0-3" {
		t.Errorf("after MkdirRunc: %q, %v", got, err)
	}
	if got, err := tree.Children("a", "cpu"); err != nil || strings.Join(got, " ") != "b" {
		t.Errorf("Children: %q, %v", got, err)
	}
	if !tree.Exists("a", "memory") || tree.Exists("x", "memory") || tree.Exists("a", "rdma") {
		t.Error("Exists is wrong")
	}
	if err := f.Rmdir("a/b"); err != nil {
		t.Error(err)
	}
	if v2, err := cgroup.Open(newFake(t, cgroup.V2)); err != nil || v2.Version != cgroup.V2 {
		t.Errorf("Open: %+v, %v", v2, err)
	}
	if _, err := NewCgroups(cgroup.V1, "", "0"); err == nil {
		t.Error("want an error for a machine without CPUs")
	}
}

func TestCgroupsObserversAtOnce(t *testing.T) {
	f := newFake(t, cgroup.V2, "a", "b")
	var mu sync.Mutex
	seen := 0
	f.OnWrite(func(path, _ string) {
		if _, err := f.ReadFile(path); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		seen++
	})
	f.FailWrites(func(path, _ string) error {
		if strings.HasPrefix(path, "b/") {
			return syscall.EIO
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := f.WriteFile("a/cpu.weight", []byte("7")); err != nil {
				t.Error(err)
			}
			if err := f.WriteFile("b/cpu.weight", []byte("7")); !errors.Is(err, syscall.EIO) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if seen != 8 {
		t.Errorf("%d accepted writes were observed", seen)
	}
}

// FuzzCgroups writes any text into every file. The fake accepts it or refuses it with an errno, and can show every file
// afterwards.
func FuzzCgroups(f *testing.F) {
	for _, text := range []string{"", "0-3", "all:1/2", "max 100000", "+cpu -memory", "254:0 rbps=1", "0x10k", "root", "-1", "N-0", "0-1:0/0"} {
		f.Add(text)
	}
	f.Add(strings.Repeat("0-3,", 1_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			fake := newFake(t, v, "p", "p/c")
			fake.AddDevice("254:0")
			var files []string
			for name := range filesV2 {
				files = append(files, "p/"+name, "p/c/"+name)
			}
			for controller, all := range filesV1 {
				for name := range all {
					files = append(files, controller+"/p/"+name, controller+"/"+name)
				}
			}
			slices.Sort(files)
			for _, file := range files {
				var errno syscall.Errno
				if err := fake.WriteFile(file, []byte(text)); err != nil && !errors.As(err, &errno) {
					t.Errorf("%v: write %s %q: %v", v, file, text, err)
				}
				if _, err := fake.ReadFile(file); err != nil && !errors.As(err, &errno) {
					t.Errorf("%v: read %s: %v", v, file, err)
				}
			}
		}
	})
}
