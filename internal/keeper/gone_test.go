package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

func TestGone(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		fake, err := kernel.NewCgroups(v, "0-1", "0")
		if err != nil {
			t.Fatal(err)
		}
		if err := fake.MkdirRunc("kubepods/pod1"); err != nil {
			t.Fatal(err)
		}
		k := New(&cgroup.Tree{FS: fake, Version: v})
		if k.Tree().IsMissing("kubepods/pod1") || !k.Tree().IsMissing("kubepods/pod2") {
			t.Errorf("%s: pod1 is there and pod2 is not", v)
		}
	}
	files, err := cgroup.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if New(&cgroup.Tree{FS: files, Version: cgroup.V1}).Tree().IsMissing("kubepods/pod1") {
		t.Error("without a cpuset hierarchy nothing can be called gone")
	}
}

// TestRuntimeWeight: the keeper keeps the weight that a runtime computed from shares, repairs any other
// weight, and learns the runtime's curve for containers. A pod's weight always follows the kubelet's curve.
func TestRuntimeWeight(t *testing.T) {
	fake, err := kernel.NewCgroups(cgroup.V2, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	if err := fake.MkdirRunc("pod/ctr"); err != nil {
		t.Fatal(err)
	}
	k := New(&cgroup.Tree{FS: fake, Version: cgroup.V2})
	shares := lifecycle.Value{Field: lifecycle.CPUShares, Int: 512}
	container, pod := Target{Owner: "c", Dir: "pod/ctr"}, Target{Owner: "p", Dir: "pod", Parent: true}
	for _, c := range []struct {
		of            Target
		kernel, after string
		want          State
	}{
		{container, "20", "20", Unchanged}, {container, "60", "20", Applied}, {pod, "60", "20", Applied},
		{container, "59", "59", Unchanged}, {container, "60", "59", Applied},
		{pod, "59", "20", Applied}, {pod, "1", "20", Applied}, {pod, "20", "20", Unchanged},
		{container, "60", "59", Applied},
	} {
		if err := fake.WriteFile(c.of.Dir+"/cpu.weight", []byte(c.kernel)); err != nil {
			t.Fatal(err)
		}
		k.RecordOnly([]Item{{Target: c.of, Value: shares}})
		got := k.Reconcile(c.of.Owner)[0]
		if got.State != c.want || got.Kernel != c.after {
			t.Errorf("weight %s of %s for 512 shares: %s, now %s (%v); want %s, %s", c.kernel, c.of.Dir, got.State, got.Kernel, got.Err, c.want, c.after)
		}
	}
}
