package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestGone(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		fake, err := cgroup.NewFake(v, "0-1", "0")
		if err != nil {
			t.Fatal(err)
		}
		if err := fake.MkdirRunc("kubepods/pod1"); err != nil {
			t.Fatal(err)
		}
		k := New(&cgroup.Tree{FS: fake, Version: v})
		if k.Tree().Gone("kubepods/pod1") || !k.Tree().Gone("kubepods/pod2") {
			t.Errorf("%s: pod1 is there and pod2 is not", v)
		}
	}
	files, err := cgroup.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if New(&cgroup.Tree{FS: files, Version: cgroup.V1}).Tree().Gone("kubepods/pod1") {
		t.Error("without a cpuset hierarchy nothing can be called gone")
	}
}

// TestRuntimeWeight checks that shares a runtime carried are left at the weight
// it chose, that another weight is mended, and that the runtime's map is learned.
func TestRuntimeWeight(t *testing.T) {
	fake, err := cgroup.NewFake(cgroup.V2, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	if err := fake.MkdirRunc("pod/ctr"); err != nil {
		t.Fatal(err)
	}
	k := New(&cgroup.Tree{FS: fake, Version: cgroup.V2})
	item := Item{Target: Target{Owner: "c", Dir: "pod/ctr"}, Value: lifecycle.Value{Field: lifecycle.CPUShares, Int: 512}}
	for _, c := range []struct {
		kernel, after string
		want          State
	}{
		{"20", "20", Same}, {"60", "20", Applied}, {"59", "59", Same}, {"60", "59", Applied},
	} {
		if err := fake.WriteFile("pod/ctr/cpu.weight", []byte(c.kernel)); err != nil {
			t.Fatal(err)
		}
		k.Note([]Item{item})
		got := k.Settle("c")[0]
		if got.State != c.want || got.Kernel != c.after {
			t.Errorf("weight %s for 512 shares: %s, now %s (%v); want %s, %s", c.kernel, got.State, got.Kernel, got.Err, c.want, c.after)
		}
	}
}
