package keeper

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// rig is a keeper on a simulated kernel that notes every accepted write.
type rig struct {
	*Keeper
	fake   *kernel.Cgroups
	tree   *cgroup.Tree
	mu     sync.Mutex
	writes []string
}

func newRig(tb testing.TB, v cgroup.Version, dirs ...string) *rig {
	tb.Helper()
	f, err := kernel.NewCgroups(v, "0-7", "0-1")
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range dirs {
		if err := f.MkdirRunc(d); err != nil {
			tb.Fatal(err)
		}
	}
	r := &rig{fake: f, tree: &cgroup.Tree{FS: f, Version: v}}
	r.Keeper = New(r.tree)
	f.OnWrite(func(path, value string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.writes = append(r.writes, strings.TrimPrefix(path, "cpuset/")+"="+value)
	})
	return r
}

// log returns the writes since the last call.
func (r *rig) log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writes
	r.writes = nil
	return w
}

// Release restores the value that a setting of an owner had before the first write, and returns the
// outcome. For a value that was never written it only drops the row.
func (r *rig) Release(owner string, field lifecycle.Field, key string) Outcome {
	worst := Outcome{Target: Target{Owner: owner}, Value: lifecycle.Value{Field: field, Key: key}, State: Forgotten}
	for _, o := range r.release(func(row *row) bool {
		if row.target.Owner != owner || row.field != field || row.key != key {
			return false
		}
		_, known := row.history.originalText()
		if known {
			r.table.release(row, r.tree.Version)
		} else {
			r.dropLocked(row)
		}
		return known
	}) {
		if worst.Target.Dir == "" || o.Err != nil {
			worst = o
		}
	}
	return worst
}

func cpus(dir, list string) Item {
	return Item{Target: Target{Owner: dir, Dir: dir}, Value: lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: list}}
}

func parentCPUs(dir, list string) Item {
	it := cpus(dir, list)
	it.Target.Parent = true
	return it
}

func num(dir string, f lifecycle.Field, n int64) Item {
	return Item{Target: Target{Owner: dir, Dir: dir}, Value: lifecycle.Value{Field: f, Int: n}}
}

func unified(dir, key, text string) Item {
	return Item{Target: Target{Owner: dir, Dir: dir}, Value: lifecycle.Value{Field: lifecycle.Unified, Key: key, Text: text}}
}

// states prints outcomes for comparison.
func states(out []Outcome) []string {
	var s []string
	for _, o := range out {
		s = append(s, fmt.Sprintf("%s %s %v %s", o.Target.Dir, o.Value.Field, o.State, o.Kernel))
	}
	return s
}

func want(tb testing.TB, got []string, want ...string) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("(-want +got)\n%s", d)
	}
}

var versions = []cgroup.Version{cgroup.V1, cgroup.V2}

func TestShrinkBeforeGrow(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a", "p/b", "p/c")
		r.Apply([]Item{cpus("p/a", "0-1"), cpus("p/b", "2-3"), cpus("p/c", "4-7")})
		r.log()
		out := r.Apply([]Item{cpus("p/a", "0-3"), cpus("p/b", "3-4"), cpus("p/c", "6-7")})
		want(t, states(out), "p/a cpuset.cpus applied 0-3", "p/b cpuset.cpus applied 3-4", "p/c cpuset.cpus applied 6-7")
		// b is written first because of its own 3, so that 2 is free before a gets it.
		want(t, r.log(), "p/b/cpuset.cpus=3", "p/c/cpuset.cpus=6-7", "p/a/cpuset.cpus=0-3", "p/b/cpuset.cpus=3-4")
		want(t, states(r.Apply([]Item{cpus("p/a", "0-3")})), "p/a cpuset.cpus same 0-3")
		want(t, r.log())
	}
}

func TestDisjointMovesWait(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a", "p/b", "p/c")
	r.Apply([]Item{cpus("p/a", "0"), cpus("p/b", "1"), cpus("p/c", "2")})
	r.log()
	r.Apply([]Item{cpus("p/a", "1"), cpus("p/b", "2"), cpus("p/c", "3")})
	want(t, r.log(), "p/c/cpuset.cpus=3", "p/b/cpuset.cpus=2", "p/a/cpuset.cpus=1")
	out := r.Apply([]Item{cpus("p/a", "2"), cpus("p/b", "1")}) // the moves form a circle
	want(t, states(out), "p/a cpuset.cpus applied 2", "p/b cpuset.cpus applied 1")
}

func TestParentMovesWithChildren(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a", "p/b")
		r.Apply([]Item{parentCPUs("p", "0-3"), cpus("p/a", "0-1"), cpus("p/b", "2-3")})
		r.log()
		out := r.Apply([]Item{cpus("p/a", "4"), cpus("p/b", "5"), parentCPUs("p", "4-5")})
		want(t, states(out), "p/a cpuset.cpus applied 4", "p/b cpuset.cpus applied 5", "p cpuset.cpus applied 4-5")
		want(t, r.log(), "p/cpuset.cpus=0-5", "p/a/cpuset.cpus=4", "p/b/cpuset.cpus=5", "p/cpuset.cpus=4-5")
	}
}

func TestClippedByParent(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a")
		r.Apply([]Item{parentCPUs("p", "0-3"), cpus("p/a", "0-1")})
		out := r.Apply([]Item{cpus("p/a", "2-5")})
		want(t, states(out), "p/a cpuset.cpus clipped 2-3")
		if out[0].Err == nil {
			t.Errorf("%v: clipped without a reason", v)
		}
		r.Apply([]Item{parentCPUs("p", "0-7")})
		want(t, states(r.Reconcile("p/a")), map[cgroup.Version]string{
			cgroup.V1: "p/a cpuset.cpus applied 2-5", cgroup.V2: "p/a cpuset.cpus same 2-5",
		}[v])
	}
}

func TestNothingLeftIsRefused(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	r.Apply([]Item{cpus("p/a", "0-1"), parentCPUs("p", "0-3")})
	out := r.Apply([]Item{cpus("p/a", "6-7")})
	want(t, states(out), "p/a cpuset.cpus refused 0-1")
	var e *cgroup.Error
	if !errors.As(out[0].Err, &e) || !errors.Is(e, syscall.EACCES) {
		t.Errorf("error %v", out[0].Err)
	}
}

func TestPendingSettleForget(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p")
		out := r.Apply([]Item{cpus("p/a", "1"), num("p/a", lifecycle.CPUShares, 1000)})
		want(t, states(out), "p/a cpuset.cpus pending ", "p/a cpu.shares pending ")
		r.RecordOnly([]Item{num("p/a", lifecycle.CPUQuota, 50000)})
		if err := r.fake.MkdirRunc("p/a"); err != nil {
			t.Fatal(err)
		}
		for _, o := range r.Reconcile("p/a") {
			if o.State != Applied {
				t.Errorf("%v: %+v", v, o)
			}
		}
		// A drift is found although everything was verified.
		if err := r.tree.Write("p/a", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-7"}); err != nil {
			t.Fatal(err)
		}
		r.log()
		if out := r.Reconcile("p/a"); len(r.log()) != 1 || out[len(out)-1].State != Applied {
			t.Errorf("%v: drift: %v", v, states(out))
		}
		r.Forget("p/a")
		if len(r.Rows()) != 0 || len(r.Reconcile("p/a")) != 0 || len(r.log()) != 0 {
			t.Errorf("%v: not forgotten", v)
		}
	}
}

func TestRelease(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p/a")
		dir := "p/a"
		before := map[lifecycle.Field]string{}
		items := []Item{
			cpus(dir, "1"), num(dir, lifecycle.CPUQuota, 50000), num(dir, lifecycle.CPUPeriod, 50000),
			num(dir, lifecycle.CPUShares, 2), num(dir, lifecycle.MemoryLimit, 1<<30),
		}
		for _, it := range items {
			before[it.Value.Field], _ = r.tree.Read(dir, it.Value.Field, "")
		}
		r.Apply(items)
		r.Apply([]Item{cpus(dir, "2"), num(dir, lifecycle.CPUQuota, 20000)})
		for _, it := range items {
			o := r.Release(dir, it.Value.Field, "")
			now, err := r.tree.Read(dir, it.Value.Field, "")
			if o.State != Applied || err != nil || now != before[it.Value.Field] {
				t.Errorf("%v %v: %+v, kernel %q, before %q", v, it.Value.Field, o, now, before[it.Value.Field])
			}
		}
		if rows := r.Rows(); len(rows) != 0 {
			t.Errorf("%v: rows left: %+v", v, rows)
		}
		r.RecordOnly([]Item{cpus(dir, "1")})
		if o := r.Release(dir, lifecycle.CPUSetCPUs, ""); o.State != Forgotten {
			t.Errorf("%v: never written: %+v", v, o)
		}
	}
}

// TestExecutorTable has the values of koordinator.md 7.3, "Executor merge". We write each value once, at
// its place in the order, instead of twice.
func TestExecutorTable(t *testing.T) {
	tests := []struct {
		version       cgroup.Version
		file, current string
		item          Item
		shows         string
	}{
		{cgroup.V1, "cpu/p/a/cpu.cfs_quota_us", "10000", num("p/a", lifecycle.CPUQuota, -1), "-1"},
		{cgroup.V1, "cpu/p/a/cpu.cfs_quota_us", "-1", num("p/a", lifecycle.CPUQuota, 10000), "10000"},
		{cgroup.V2, "p/a/cpu.max", "10000 100000", num("p/a", lifecycle.CPUQuota, -1), "max 100000"},
		{cgroup.V2, "p/a/cpu.max", "max 100000", num("p/a", lifecycle.CPUQuota, 200000), "200000 100000"},
		{cgroup.V2, "p/a/memory.min", "1048576", unified("p/a", "memory.min", "2097152"), "2097152"},
		{cgroup.V2, "p/a/memory.min", "2097152", unified("p/a", "memory.min", "1048576"), "1048576"},
		{cgroup.V2, "p/a/cpuset.cpus", "0-3", cpus("p/a", "2-5"), "2-5"},
		{cgroup.V2, "p/a/cpu.weight", "100", num("p/a", lifecycle.CPUShares, 50000), "1908"},
	}
	for _, tt := range tests {
		r := newRig(t, tt.version, "p/a")
		if err := r.fake.WriteFile(tt.file, []byte(tt.current)); err != nil {
			t.Fatal(err)
		}
		r.log()
		o := r.Apply([]Item{tt.item})[0]
		got, err := r.fake.ReadFile(tt.file)
		if o.State != Applied || err != nil || strings.TrimSpace(string(got)) != tt.shows {
			t.Errorf("%s %q: %v, shows %q, want %q", tt.file, tt.current, states([]Outcome{o}), got, tt.shows)
		}
		r.log()
		if o := r.Apply([]Item{tt.item})[0]; o.State != Unchanged || len(r.log()) != 0 {
			t.Errorf("%s: written again: %v", tt.file, o.State)
		}
	}
}

func TestBandwidthOrder(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	q := func(dir string, n int64) Item { return num(dir, lifecycle.CPUQuota, n) }
	for _, pair := range [][2]int64{{100000, 50000}, {300000, 200000}, {60000, 60000}, {-1, 400000}, {50000, 50000}} {
		for _, o := range r.Apply([]Item{q("p/a", pair[1]), q("p", pair[0])}) {
			if o.State != Applied {
				t.Errorf("%v: %v %v", pair, o.State, o.Err)
			}
		}
	}
	// The burst follows a higher quota and precedes a lower one.
	for _, n := range []int64{80000, 20000} {
		out := r.Apply([]Item{unified("p/b", burstKey, "0"), unified("p/a", burstKey, fmt.Sprint(n/2)), q("p/a", n), q("p", n)})
		if out[0].State != Pending || out[1].State != Applied || out[2].State != Applied {
			t.Errorf("burst at %d: %v", n, states(out))
		}
	}
	v2 := newRig(t, cgroup.V2, "p/a")
	v2.Apply([]Item{q("p/a", 20000), num("p/a", lifecycle.CPUPeriod, 50000)})
	want(t, v2.log(), "p/a/cpu.max=20000 50000")
	v2.Apply([]Item{num("p/a", lifecycle.CPUPeriod, 100000)})
	want(t, v2.log(), "p/a/cpu.max=20000 100000")
}

func TestIdleKeepsWeight(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p")
		r.Apply([]Item{unified("p", idleKey, "1"), num("p", lifecycle.CPUShares, 2000)})
		weight := map[cgroup.Version]string{cgroup.V1: "2000", cgroup.V2: "77"}[v]
		for _, o := range r.Reconcile("p") {
			if o.Value.Field == lifecycle.CPUShares && (o.State != Pending || o.Err == nil) {
				t.Errorf("%v: weight while idle: %v, %v", v, o.State, o.Err)
			}
		}
		if o := r.Release("p", lifecycle.Unified, idleKey); o.State != Applied {
			t.Errorf("%v: %+v", v, o)
		}
		if got, err := r.tree.Read("p", lifecycle.CPUShares, ""); err != nil || got != weight {
			t.Errorf("%v: weight %q, %v after idle, want %s", v, got, err, weight)
		}
	}
}

// TestWeightAfterIdle: a cgroup goes from idle directly to a weight. A release restores the weight from
// before both, not the one that an idle cgroup shows.
func TestWeightAfterIdle(t *testing.T) {
	for _, v := range versions {
		r := newRig(t, v, "p")
		before := map[cgroup.Version]string{cgroup.V1: "512", cgroup.V2: "20"}[v]
		if err := r.tree.WriteText("p", lifecycle.CPUShares, "", before); err != nil {
			t.Fatal(err)
		}
		for _, shares := range []int64{2000, 2, 3} { // an idle cgroup shows 2 or 3 shares
			r.Apply([]Item{unified("p", idleKey, "1")})
			r.Apply([]Item{unified("p", idleKey, "0"), num("p", lifecycle.CPUShares, shares)})
			r.Release("p", lifecycle.CPUShares, "")
			r.Release("p", lifecycle.Unified, idleKey)
			if got, err := r.tree.Read("p", lifecycle.CPUShares, ""); err != nil || got != before {
				t.Errorf("%v: weight %q (%v) after idle and %d shares, want %s", v, got, err, shares, before)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a", "p/b")
	out := r.Apply([]Item{
		cpus("p/a", ""), cpus("../x", "0"), num("p/a", lifecycle.CPUShares, 0),
		{Target: Target{"o", "p/a", false}, Value: lifecycle.Value{Field: lifecycle.Env, Key: "A", Text: "b"}},
		unified("p/a", "memory.high", "max"), cpus("p/a", "9"), cpus("p/b", "0"), cpus("p/b", "1"),
	})
	var got []string
	for _, o := range out {
		got = append(got, o.State.String())
		var e *cgroup.Error
		if o.State == Refused && !errors.As(o.Err, &e) {
			t.Errorf("no evidence: %v", o.Err)
		}
	}
	want(t, got, "refused", "refused", "refused", "refused", "refused", "refused", "applied", "applied")
	want(t, []string{out[6].Kernel, out[7].Kernel}, "1", "1") // the later of two values counts
	if rows := r.Rows(); len(rows) != 2 || rows[0].State != Refused || rows[1].Original != "0-7" {
		t.Errorf("rows %+v", rows)
	}
}

func TestHeldCPUsAreNotGiven(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a", "p/b")
	r.Apply([]Item{cpus("p/a", "0-3"), cpus("p/b", "4-7")})
	if err := r.fake.MkdirRunc("p/a/nested"); err != nil { // uses CPUs 0-3
		t.Fatal(err)
	}
	out := r.Apply([]Item{cpus("p/b", "2-7"), cpus("p/a", "0-1")})
	want(t, states(out), "p/b cpuset.cpus refused 4-7", "p/a cpuset.cpus refused 0-3")
	if !errors.Is(out[0].Err, ErrNotFreed) || !errors.Is(out[1].Err, syscall.EBUSY) {
		t.Errorf("errors %v, %v", out[0].Err, out[1].Err)
	}
	if err := r.fake.Rmdir("p/a/nested"); err != nil {
		t.Fatal(err)
	}
	// The first write also triggers the other one, which waited for what it gives up.
	want(t, states(append(r.Reconcile("p/a"), r.Reconcile("p/b")...)), "p/a cpuset.cpus applied 0-1", "p/b cpuset.cpus same 2-7")
}
