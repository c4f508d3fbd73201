package cgroup_test

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

func TestTreeBandwidth(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		f, err := kernel.NewCgroups(v, "0-3", "0-1")
		if err == nil {
			err = f.MkdirRunc("p/c")
		}
		if err != nil {
			t.Fatal(err)
		}
		tree := &cgroup.Tree{FS: f, Version: v}
		limit := func(dir, quota, period string) {
			t.Helper()
			if err := tree.WriteBandwidth(dir, quota, period); err != nil {
				t.Errorf("%v: %v", v, err)
			}
			q, p, err := tree.ReadBandwidth(dir)
			if err != nil || quota != "" && !(&cgroup.Tree{}).Resolve("a", lifecycle.CPUQuota, "").Same(q, quota) || period != "" && p != period {
				t.Errorf("%v: %s after %q %q: %q %q, %v", v, dir, quota, period, q, p, err)
			}
		}
		limit("p", "100000", "100000")
		limit("p/c", "100000", "")
		limit("p/c", "50000", "50000") // with the period first, the share would be twice the parent's
		limit("p/c", "100000", "100000")
		limit("p/c", "", "200000")
		none := map[cgroup.Version]string{cgroup.V1: "-1", cgroup.V2: "max"}[v]
		limit("p/c", none, "")
		if got, err := tree.Read("p/c", lifecycle.CPUPeriod, ""); err != nil || got != "200000" {
			t.Errorf("%v: period %q, %v", v, got, err)
		}
	}
}

func TestErrorText(t *testing.T) {
	f, err := kernel.NewCgroups(cgroup.V1, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.MkdirRunc("kubepods/pod1"); err != nil {
		t.Fatal(err)
	}
	tree := &cgroup.Tree{FS: f, Version: cgroup.V1}
	mustWrite(t, tree, "kubepods", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"})
	mustWrite(t, tree, "kubepods/pod1", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "1"})
	err = tree.Write("kubepods", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0"})
	want := `write cpuset/kubepods/cpuset.cpus "0": device or resource busy (a child cgroup still has CPUs or memory nodes that the write would remove)`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	var e *cgroup.Error
	if !errors.As(err, &e) || e.Path != "cpuset/kubepods/cpuset.cpus" || e.Value != "0" {
		t.Errorf("evidence lost: %+v", e)
	}
	_, err = tree.Read("kubepods/none", lifecycle.CPUQuota, "")
	if !cgroup.IsNotExist(err) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing cgroup: %v", err)
	}
	if d := cmp.Diff("read cpu/kubepods/none/cpu.cfs_quota_us: no such file or directory", err.Error()); d != "" {
		t.Error(d)
	}
}

func mustWrite(t *testing.T, tree *cgroup.Tree, dir string, v lifecycle.Value) {
	t.Helper()
	if err := tree.Write(dir, v); err != nil {
		t.Fatal(err)
	}
}

// threadless is a kernel that shows threads of another PID namespace, as cgroup v2 does.
type threadless struct{ cgroup.FS }

func (threadless) ReadFile(string) ([]byte, error) { return []byte("0\n0\n"), nil }

// TestThreadsOfAnotherNamespace: to system calls thread 0 is the caller, so it must not be a thread of a container.
func TestThreadsOfAnotherNamespace(t *testing.T) {
	f, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err == nil {
		err = f.MkdirRunc("p/c")
	}
	if err != nil {
		t.Fatal(err)
	}
	tree := &cgroup.Tree{FS: threadless{f}, Version: cgroup.V2}
	if ids, err := tree.Threads("p/c"); len(ids) != 0 || !errors.Is(err, cgroup.ErrPIDNamespace) {
		t.Errorf("threads %v, %v; want none, %v", ids, err, cgroup.ErrPIDNamespace)
	}
}
