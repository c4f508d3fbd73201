package keeper

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// pages is a journal in memory.
type pages struct{ bytes.Buffer }

func (p *pages) Append(lines []byte) error { _, err := p.Write(lines); return err }

func (p *pages) Replace(lines []byte) error { p.Reset(); return p.Append(lines) }

func (p *pages) all() []byte { return append([]byte{}, p.Bytes()...) }

// partRig is a rig whose kernel has remote partitions.
func partRig(t *testing.T, dirs ...string) *rig {
	t.Helper()
	r := newRig(t, cgroup.V2, dirs...)
	if err := r.fake.SetRelease("6.12"); err != nil {
		t.Fatal(err)
	}
	return r
}

// pod is a pod's cgroup with exclusive CPUs; without CPUs its partition ends.
func pod(dir, list string) []Item {
	t := Target{Owner: "of " + dir, Dir: dir, Parent: true}
	is := "root"
	if list == "" {
		is = "member"
	}
	var items []Item
	for _, v := range []lifecycle.Value{{Key: cgroup.ExclusiveFile, Text: list}, {Key: cgroup.PartitionFile, Text: is}} {
		v.Field, v.Scope = lifecycle.Unified, lifecycle.OfPod
		items = append(items, Item{Target: t, Value: v, Restore: list == ""})
	}
	return items
}

// wantFiles checks files of the tree.
func (r *rig) wantFiles(t *testing.T, when string, want map[string]string) {
	t.Helper()
	for file, text := range want {
		b, err := r.fake.ReadFile(file)
		if got := strings.TrimSpace(string(b)); err != nil || got != text {
			t.Errorf("%s: %s is %q (%v), want %q", when, file, got, err, text)
		}
	}
}

func endings(out []Outcome) []State {
	var all []State
	for _, o := range out {
		all = append(all, o.State)
	}
	return all
}

// TestPartitionOrder: pods get exclusive CPUs, pass some to others in one batch, and give them up. Cgroups
// above are written first if CPUs are added, and last if they are removed, and no write is refused.
func TestPartitionOrder(t *testing.T) {
	r := partRig(t, "k/q/a", "k/q/b", "k/c", "system")
	for _, c := range []struct {
		name   string
		batch  []Item
		writes []string
		system string
	}{
		{"a comes", pod("k/q/a", "2-3"), []string{
			"k/cpuset.cpus.exclusive=2-3", "k/q/cpuset.cpus.exclusive=2-3", "k/q/a/cpuset.cpus.exclusive=2-3", "k/q/a/cpuset.cpus.partition=root",
		}, "0-1,4-7"},
		{"b gets one of a's", append(pod("k/q/b", "3"), pod("k/q/a", "2")...), []string{
			"k/q/a/cpuset.cpus.exclusive=2", "k/q/cpuset.cpus.exclusive=2", "k/cpuset.cpus.exclusive=2",
			"k/cpuset.cpus.exclusive=2-3", "k/q/cpuset.cpus.exclusive=2-3", "k/q/b/cpuset.cpus.exclusive=3", "k/q/b/cpuset.cpus.partition=root",
		}, "0-1,4-7"},
		{"c has them elsewhere", append(pod("k/c", "2"), pod("k/q/a", "")...), []string{
			"k/q/a/cpuset.cpus.partition=member", "k/q/a/cpuset.cpus.exclusive=\n", "k/q/cpuset.cpus.exclusive=3", "k/cpuset.cpus.exclusive=3",
			"k/cpuset.cpus.exclusive=2-3", "k/c/cpuset.cpus.exclusive=2", "k/c/cpuset.cpus.partition=root",
		}, "0-1,4-7"},
		{"all is given back", append(pod("k/c", ""), pod("k/q/b", "")...), []string{
			"k/c/cpuset.cpus.partition=member", "k/c/cpuset.cpus.exclusive=\n", "k/q/b/cpuset.cpus.partition=member", "k/q/b/cpuset.cpus.exclusive=\n",
			"k/q/cpuset.cpus.exclusive=\n", "k/cpuset.cpus.exclusive=\n",
		}, "0-7"},
	} {
		r.log()
		if got := endings(r.Apply(c.batch)); !slices.Equal(got, slices.Repeat([]State{Applied}, len(c.batch))) {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := r.log(); !slices.Equal(got, c.writes) {
			t.Errorf("%s: written\n%q, want\n%q", c.name, got, c.writes)
		}
		r.wantFiles(t, c.name, map[string]string{"system/cpuset.cpus.effective": c.system})
		r.Apply(c.batch[:len(c.batch):len(c.batch)])
		if got := r.log(); len(got) > 0 {
			t.Errorf("%s: once more: written %q", c.name, got)
		}
	}
	if rows := r.Rows(); len(rows) > 0 {
		t.Errorf("rows are left: %+v", rows)
	}
}

// TestForgottenPartition gives the CPUs of an ended pod to another one, while the first one's cgroup still
// exists.
func TestForgottenPartition(t *testing.T) {
	r := partRig(t, "k/a", "k/b")
	r.Apply(pod("k/a", "2-3"))
	r.Forget("of k/a")
	if got := endings(r.Apply(pod("k/b", "2-3"))); !slices.Equal(got, []State{Applied, Applied}) {
		t.Errorf("%v", got)
	}
	want := map[string]string{
		"k/a/cpuset.cpus.partition": "member", "k/a/cpuset.cpus.exclusive": "", "k/b/cpuset.cpus.partition": "root", "k/cpuset.cpus.exclusive": "2-3",
	}
	r.wantFiles(t, "b has them", want)
	r.Forget("of k/b")
	r.Apply(nil)
	want["k/b/cpuset.cpus.partition"], want["k/cpuset.cpus.exclusive"] = "member", ""
	r.wantFiles(t, "nobody has them", want)
	r.Apply(pod("k/a", "2-3"))
	must(r.fake.Rmdir("k/a")) // and its partition with it
	r.Forget("of k/a")
	r.Apply(nil)
	r.wantFiles(t, "its cgroup is gone", map[string]string{"k/cpuset.cpus.exclusive": "", "k/b/cpuset.cpus.effective": "0-7"})
	if rows := r.Rows(); len(rows) > 0 {
		t.Errorf("rows are left: %+v", rows)
	}
}

// TestSpoiledPartition: another program gives CPUs of a partition to a cgroup beside it, and the kernel
// ends the partition. While that lasts, the kernel's refusal is reported and nothing is left half done;
// afterwards the partition is made again.
func TestSpoiledPartition(t *testing.T) {
	r := partRig(t, "k/a", "k/b")
	r.Apply(pod("k/a", "2-3"))
	must(r.tree.WriteText("k/b", lifecycle.CPUSetCPUs, "", "1-2"))
	r.wantFiles(t, "invalidated", map[string]string{"k/a/cpuset.cpus.partition": "root invalid"})
	out := r.Repair("of k/a")
	if got := endings(out); !slices.Equal(got, []State{Refused, Refused}) || out[0].Err == nil {
		t.Errorf("while it stands: %v", out)
	}
	r.wantFiles(t, "while it stands", map[string]string{"k/a/cpuset.cpus.partition": "member", "k/a/cpuset.cpus.exclusive": "", "k/cpuset.cpus.exclusive": ""})
	must(r.tree.WriteText("k/b", lifecycle.CPUSetCPUs, "", "0-1"))
	if got := endings(r.Reconcile("of k/a")); !slices.Equal(got, []State{Applied, Applied}) {
		t.Errorf("afterwards: %v", got)
	}
	r.wantFiles(t, "afterwards", map[string]string{"k/a/cpuset.cpus.partition": "root", "k/cpuset.cpus.exclusive": "2-3", "k/b/cpuset.cpus.effective": "0-1"})
}

// TestPartitionReleased: a keeper with only the journal restores what an earlier keeper made, including
// partitions that the kernel has ended.
func TestPartitionReleased(t *testing.T) {
	for _, invalidated := range []bool{false, true} {
		r := partRig(t, "k/q/a", "k/q/b")
		j := &pages{}
		must(r.Originals.Load(j, nil))
		r.Apply(pod("k/q/a", "2-3"))
		if invalidated {
			must(r.tree.WriteText("k/q/b", lifecycle.CPUSetCPUs, "", "1-2"))
		}
		later := New(r.tree)
		must(later.Originals.Load(&pages{}, j.all()))
		if got, ok := later.ParentCPUs("k/q/a"); !ok || got != "" {
			t.Errorf("the pod's cgroup allows %q (%v), want all", got, ok)
		}
		for _, o := range later.ReleaseAll() {
			if o.Err != nil {
				t.Errorf("invalidated %t: %+v", invalidated, o)
			}
		}
		r.wantFiles(t, "released", map[string]string{
			"k/q/a/cpuset.cpus.partition": "member", "k/q/a/cpuset.cpus.exclusive": "", "k/q/cpuset.cpus.exclusive": "", "k/cpuset.cpus.exclusive": "",
		})
	}
}

// TestNoPartitions: if the kernel has no partitions, that is reported, and nothing else happens.
func TestNoPartitions(t *testing.T) {
	r := newRig(t, cgroup.V2, "k/a") // a kernel 6.1
	out := r.Apply(pod("k/a", "2-3"))
	if got := endings(out); !slices.Equal(got, []State{Refused, Refused}) || errors.Is(out[0].Err, ErrInPartition) {
		t.Errorf("%v", out)
	}
	r.wantFiles(t, "refused", map[string]string{"k/a/cpuset.cpus.partition": "member"})
}
