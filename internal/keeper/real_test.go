package keeper

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// realTree makes a pod with n containers in a version 1 cpuset cgroup only for this test, and skips the
// test if the host has none.
func realTree(tb testing.TB, n int) (tree *cgroup.Tree, pod string, leaves []string) {
	tb.Helper()
	const mount = "/sys/fs/cgroup"
	if os.Geteuid() != 0 {
		tb.Skip("SKIPPED: writing real cgroups needs root")
	}
	real, err := cgroup.OpenRoot(mount)
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	tb.Cleanup(func() { real.Close() })
	if tree, err = cgroup.Open(real); err != nil || tree.Version != cgroup.V1 {
		tb.Skipf("SKIPPED: this host has no cgroup v1: %v", err)
	}
	if list, err := tree.Allowed(".", lifecycle.CPUSetCPUs); err != nil || !strings.ContainsAny(list, "-,") {
		tb.Skipf("SKIPPED: needs two CPUs, this host has %q (%v)", list, err)
	}
	pod = fmt.Sprintf("trimtab-test-%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	dirs := []string{pod}
	for i := range n {
		leaves = append(leaves, fmt.Sprintf("%s/c%d", pod, i))
	}
	for _, d := range append(dirs, leaves...) {
		dir := filepath.Join(mount, "cpuset", d)
		if err := os.Mkdir(dir, 0o755); err != nil {
			tb.Skipf("SKIPPED: cannot make a cgroup: %v", err)
		}
		tb.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				tb.Errorf("left behind: %v", err)
			}
		})
	}
	return tree, pod, leaves
}

// TestRealMove moves a pod and its containers to a disjoint set, which the kernel allows in only one order.
func TestRealMove(t *testing.T) {
	tree, pod, leaves := realTree(t, 3)
	k := New(tree)
	for _, list := range []string{"0", "1", "0-1", "0"} {
		var batch []Item
		for _, leaf := range leaves {
			batch = append(batch, cpus(leaf, list))
		}
		for _, o := range k.Apply(append(batch, parentCPUs(pod, list))) {
			if o.State != Applied || o.Kernel != list {
				t.Errorf("%s to %s: %v %q, %v", o.Target.Dir, list, o.State, o.Kernel, o.Err)
			}
		}
	}
	if o := k.Apply([]Item{cpus(leaves[0], "0-1")})[0]; o.State != Clipped || o.Kernel != "0" {
		t.Errorf("beyond the parent: %v %q", o.State, o.Kernel)
	}
	if err := tree.Write(pod, lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-1"}); err != nil {
		t.Fatal(err)
	}
	if o := k.Reconcile(leaves[0])[0]; o.State != Applied || o.Kernel != "0-1" {
		t.Errorf("after the parent grew: %v %q", o.State, o.Kernel)
	}
}

func BenchmarkRealMove(b *testing.B) {
	const n = 50
	tree, pod, leaves := realTree(b, n)
	k := New(tree)
	var batches [2][]Item
	for _, leaf := range leaves {
		batches[0] = append(batches[0], cpus(leaf, "0"))
		batches[1] = append(batches[1], cpus(leaf, "0-1"))
	}
	k.Apply([]Item{parentCPUs(pod, "0-1")})
	k.Apply(batches[1])
	i := 0
	for b.Loop() {
		for _, o := range k.Apply(batches[i%2]) {
			if o.State != Applied {
				b.Fatalf("%+v", o)
			}
		}
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/container")
}

// BenchmarkRealLook measures how long it takes to check that no file has changed. The watcher checks all
// files once a minute if inotify reports writes, and otherwise 300 per second.
func BenchmarkRealLook(b *testing.B) {
	const n = 50
	tree, pod, leaves := realTree(b, n)
	k := New(tree)
	k.SetClock(time.Now)
	k.Apply([]Item{parentCPUs(pod, "0-1")})
	for _, leaf := range leaves {
		k.Apply([]Item{cpus(leaf, "0")})
	}
	files := len(k.watched.paths())
	for b.Loop() {
		if owners := k.DifferingOwners(); len(owners) > 0 {
			b.Fatalf("%q differ", owners)
		}
	}
	per := float64(b.Elapsed().Nanoseconds()) / float64(b.N*files)
	b.ReportMetric(per, "ns/file")
	const kept = 4 // the files of a container
	b.ReportMetric(per*kept*1000/60e9*100, "%cpu/1000containers")
	b.ReportMetric(per*300/1e9*100, "%cpu/blind")
}
