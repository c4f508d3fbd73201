package cgroup_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// withoutFS hides files with a name, and refuses to read those in denied.
type withoutFS struct {
	cgroup.FS
	hidden, denied string
}

func (w withoutFS) ReadFile(path string) ([]byte, error) {
	switch {
	case w.hidden != "" && strings.HasSuffix(path, "/"+w.hidden):
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	case w.denied != "" && strings.HasSuffix(path, "/"+w.denied):
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
	}
	return w.FS.ReadFile(path)
}

// TestProbe checks all three answers.
func TestProbe(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		fake := func(dirs ...string) *kernel.Cgroups {
			f, err := kernel.NewCgroups(v, "0-1", "0")
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range dirs {
				if err := f.MkdirRunc(d); err != nil {
					t.Fatal(err)
				}
			}
			return f
		}
		bvt := fake("kubepods")
		if err := bvt.AddOptionalFiles("cpu.bvt_warp_ns"); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, feature string
			fs            cgroup.FS
			want          lifecycle.Support
		}{
			{"controller", "cpu", fake(), lifecycle.Supported},
			{"no controller", "misc", fake(), lifecycle.NotSupported},
			{"file of no controller", "misc.max", fake(), lifecycle.NotSupported},
			{"file", "cpu.idle", fake("kubepods"), lifecycle.Supported},
			{"file under another name", "cpu.max.burst", fake("a", "kubepods.slice"), lifecycle.Supported},
			{"file of other kernels", "cpu.bvt_warp_ns", bvt, lifecycle.Supported},
			{"no file", "cpu.bvt_warp_ns", fake("kubepods"), lifecycle.NotSupported},
			{"an old kernel", "cpu.idle", withoutFS{FS: fake("kubepods"), hidden: "cpu.idle"}, lifecycle.NotSupported},
			{"nothing was started yet", "cpu.bvt_warp_ns", fake(), lifecycle.Unknown},
			{"may not look", "cpu.idle", withoutFS{FS: fake("kubepods"), denied: "cpu.idle"}, lifecycle.Unknown},
		} {
			got := (&cgroup.Tree{FS: c.fs, Version: v}).Probe(c.feature)
			if got.Support != c.want || (c.want == lifecycle.Supported) != (got.Why == "") {
				t.Errorf("%v, %s: %+v, want %v", v, c.name, got, c.want)
			}
		}
	}
	f, _ := kernel.NewCgroups(cgroup.V2, "0", "0")
	if f.AddOptionalFiles("cpu.idle") == nil || f.AddOptionalFiles("x") == nil {
		t.Error("the fake offers what it does not have")
	}
}

// TestProbePartitions: remote partitions exist if the file cpuset.cpus.exclusive exists.
func TestProbePartitions(t *testing.T) {
	for _, c := range []struct {
		version cgroup.Version
		release string
		dir     string
		want    lifecycle.Support
	}{
		{cgroup.V2, "6.12", "kubepods", lifecycle.Supported}, {cgroup.V2, "6.7", "kubepods", lifecycle.Supported},
		{cgroup.V2, "6.6", "kubepods", lifecycle.NotSupported}, {cgroup.V1, "6.12", "kubepods", lifecycle.NotSupported}, {cgroup.V2, "6.12", "", lifecycle.Unknown},
	} {
		f, err := kernel.NewCgroups(c.version, "0-3", "0")
		if err == nil {
			err = f.SetRelease(c.release)
		}
		if err == nil && c.dir != "" {
			err = f.MkdirRunc(c.dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := (&cgroup.Tree{FS: f, Version: c.version}).Probe(cgroup.ExclusiveFile); got.Support != c.want {
			t.Errorf("version %v, kernel %s, cgroup %q: %+v, want %v", c.version, c.release, c.dir, got, c.want)
		}
	}
}

// TestSigned: group identities may be negative.
func TestSigned(t *testing.T) {
	for text, ok := range map[string]bool{"-1": true, "0": true, "2": true, "3": false, "-2": false, "--1": false, "": false, "max": false} {
		got, err := (&cgroup.Tree{Version: cgroup.V2}).Resolve("a", lifecycle.Unified, "cpu.bvt_warp_ns").Encode(lifecycle.Value{Field: lifecycle.Unified, Key: "cpu.bvt_warp_ns", Text: text})
		if (err == nil) != ok || ok && got != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if (&cgroup.Tree{Version: cgroup.V2}).Resolve("a", lifecycle.Unified, "cpu.bvt_warp_ns").Compare("-1", "0") != -1 || !(&cgroup.Tree{}).Resolve("a", lifecycle.Unified, "cpu.bvt_warp_ns").Same("-1", "-1\n") {
		t.Error("-1 is not below 0, or not itself")
	}
	if v, err := cgroup.Decode(cgroup.V2, lifecycle.Unified, "cpu.bvt_warp_ns", "-1\n"); err != nil || v.Text != "-1" {
		t.Error(v, err)
	}
}
