package keeper

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"pgregory.net/rapid"
)

// counting is an FS that counts accesses and notes refused writes.
type counting struct {
	cgroup.FS
	reads, writes atomic.Int64

	mu      sync.Mutex
	refused []string
}

func (c *counting) ReadFile(p string) ([]byte, error) {
	c.reads.Add(1)
	return c.FS.ReadFile(p)
}

func (c *counting) WriteFile(p string, data []byte) error {
	c.writes.Add(1)
	err := c.FS.WriteFile(p, data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.mu.Lock()
		c.refused = append(c.refused, fmt.Sprintf("%s=%s: %v", p, data, err))
		c.mu.Unlock()
	}
	return err
}

var leafDirs = []string{"p0/a", "p0/b", "p1/c", "p1/d"}

func countedRig(tb testing.TB, v cgroup.Version) (*rig, *counting) {
	tb.Helper()
	r := newRig(tb, v, leafDirs...)
	c := &counting{FS: r.fake}
	r.tree = &cgroup.Tree{FS: c, Version: v}
	r.Keeper = New(r.tree)
	return r, c
}

// layout is a valid state: each CPU belongs to at most one leaf, every leaf has at least its own CPU, and
// parents have at least the CPUs of their leaves.
func layout(rt *rapid.T) map[string]cgroup.IDs {
	sets := map[string]cgroup.IDs{}
	add := func(dir string, cpu int) {
		ids, _ := cgroup.ParseIDs(fmt.Sprint(cpu))
		sets[dir] = sets[dir].Union(ids)
	}
	for i, leaf := range leafDirs {
		add(leaf, i)
		add(leaf[:2], i)
	}
	for cpu := 4; cpu < 8; cpu++ {
		if n := rapid.IntRange(0, 4).Draw(rt, "leaf"); n < 4 {
			add(leafDirs[n], cpu)
			add(leafDirs[n][:2], cpu)
		}
		if n := rapid.IntRange(0, 3).Draw(rt, "parent"); n < 2 {
			add(fmt.Sprintf("p%d", n), cpu)
		}
	}
	return sets
}

func batchOf(rt *rapid.T, sets map[string]cgroup.IDs) []Item {
	var batch []Item
	for _, dir := range rapid.Permutation([]string{"p0", "p1", "p0/a", "p0/b", "p1/c", "p1/d"}).Draw(rt, "order") {
		it := cpus(dir, sets[dir].String())
		it.Target.Parent = !strings.Contains(dir, "/")
		batch = append(batch, it)
	}
	return batch
}

// TestLegalLayouts changes one valid layout into another: no write is refused, no two leaves ever share a
// CPU, and the result is the desired layout.
func TestLegalLayouts(t *testing.T) {
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r, c := countedRig(t, v)
			r.Apply(batchOf(rt, layout(rt)))
			c.refused = nil
			r.fake.OnWrite(func(path, value string) {
				var all cgroup.IDs
				for _, leaf := range leafDirs {
					text, err := r.tree.Effective(leaf, lifecycle.CPUSetCPUs)
					own, _ := cgroup.ParseIDs(text)
					if err != nil || own.Empty() || !own.And(all).Empty() {
						rt.Errorf("%v: after %s=%s: %s has %q (%v), others %v", v, path, value, leaf, text, err, all)
					}
					all = all.Union(own)
				}
			})
			for range rapid.IntRange(1, 4).Draw(rt, "steps") {
				sets := layout(rt)
				for _, o := range r.Apply(batchOf(rt, sets)) {
					if o.State != Applied && o.State != Unchanged || o.Kernel != sets[o.Target.Dir].String() {
						rt.Errorf("%v: %s wanted %v: %v %q %v", v, o.Target.Dir, sets[o.Target.Dir], o.State, o.Kernel, o.Err)
					}
				}
			}
			if len(c.refused) > 0 {
				rt.Errorf("%v: refused %q", v, c.refused)
			}
		})
	}
}

// TestAnyLayouts requests arbitrary layouts: values that are reported as in force are, others have a
// reason, and no list is ever empty.
func TestAnyLayouts(t *testing.T) {
	set := rapid.Custom(func(rt *rapid.T) string {
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 8), 1, 6, rapid.ID[int]).Draw(rt, "cpus")
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ",")
	})
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r, _ := countedRig(t, v)
			dirs := rapid.SampledFrom([]string{"p0", "p1", "p0/a", "p0/b", "p1/c", "p1/d", "p1/none"})
			for range rapid.IntRange(1, 6).Draw(rt, "steps") {
				var batch []Item
				for range rapid.IntRange(1, 6).Draw(rt, "items") {
					batch = append(batch, cpus(dirs.Draw(rt, "dir"), set.Draw(rt, "set")))
				}
				checkOutcomes(rt, r, r.Apply(batch))
				dir := dirs.Draw(rt, "dir")
				checkOutcomes(rt, r, r.Reconcile(dir))
				if rapid.Bool().Draw(rt, "release") {
					r.Release(dir, lifecycle.CPUSetCPUs, "")
				}
			}
		})
	}
}

func checkOutcomes(rt *rapid.T, r *rig, out []Outcome) {
	latest := map[string]Outcome{}
	for _, o := range out {
		latest[o.Target.Dir] = o
	}
	for dir, o := range latest {
		now, err := r.tree.Effective(dir, lifecycle.CPUSetCPUs)
		switch {
		case o.State == Pending:
			if err == nil || dir != "p1/none" {
				rt.Errorf("%s is pending and has %q", dir, now)
			}
		case err != nil || now == "":
			rt.Errorf("%s: %q, %v", dir, now, err)
		case o.State == Refused || o.State == Clipped:
			if o.Err == nil {
				rt.Errorf("%s: %v without a reason", dir, o.State)
			}
		case !(&cgroup.Tree{}).Resolve("a", lifecycle.CPUSetCPUs, "").Same(now, o.Value.Text):
			rt.Errorf("%s: %v of %q, has %q", dir, o.State, o.Value.Text, now)
		}
	}
}

// TestLegalQuotas changes between states in which no child has more CPU time than its parent: version 1
// refuses every other intermediate state.
func TestLegalQuotas(t *testing.T) {
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r, c := countedRig(t, v)
			periods := rapid.SampledFrom([]int64{20000, 50000, 100000})
			for range rapid.IntRange(1, 6).Draw(rt, "steps") {
				var batch []Item
				share := map[string]int64{"p0": -1, "p1": -1}
				for _, p := range []string{"p0", "p1"} {
					if rapid.Bool().Draw(rt, "limited") {
						share[p] = rapid.Int64Range(2, 40).Draw(rt, "share")
						batch = append(batch, num(p, lifecycle.CPUQuota, share[p]*10000))
					} else {
						batch = append(batch, num(p, lifecycle.CPUQuota, -1))
					}
				}
				for _, leaf := range leafDirs {
					most := share[leaf[:2]]
					if most < 0 {
						most = 50
					}
					period, part := periods.Draw(rt, "period"), rapid.Int64Range(1, most).Draw(rt, "part")
					batch = append(batch,
						num(leaf, lifecycle.CPUQuota, part*period/10), num(leaf, lifecycle.CPUPeriod, period))
				}
				for _, o := range r.Apply(rapid.Permutation(batch).Draw(rt, "batch")) {
					if o.State != Applied && o.State != Unchanged {
						rt.Errorf("%v: %s %v=%v: %v %v; refused %q", v, o.Target.Dir, o.Value.Field, o.Value, o.State, o.Err, c.refused)
					}
				}
			}
		})
	}
}

// TestAtOnce has many concurrent writers of few cgroups: in the end the kernel has the values in the table,
// and every writer knows the outcome of its value.
func TestAtOnce(t *testing.T) {
	for _, v := range versions {
		r, _ := countedRig(t, v)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 30 {
					leaf := leafDirs[(w+i)%len(leafDirs)]
					out := r.Apply([]Item{
						cpus(leaf, fmt.Sprint((w+i)%8)), num(leaf, lifecycle.CPUShares, int64(2+w*100+i)),
						num(leaf, lifecycle.CPUQuota, int64(10000+w*100+i)), num(leaf, lifecycle.CPUPeriod, int64(50000+w)),
					})
					for _, o := range out {
						if o.State == Refused || o.State == Pending || o.State == Forgotten {
							t.Errorf("%v: %+v", v, o)
						}
					}
					r.Rows()
					if w == 0 {
						r.Reconcile(leaf)
					}
				}
			})
		}
		wg.Wait()
		for _, row := range r.Rows() {
			now, err := r.tree.Read(row.Dir, row.Value.Field, row.Value.Key)
			// In version 2 two values of shares may have the same weight, and another writer's value may
			// have been one of them.
			image := v == cgroup.V2 && row.Value.Field == lifecycle.CPUShares &&
				(now == weightText(cgroup.Weight(row.Value.Int)) || now == weightText(cgroup.RuntimeWeight(row.Value.Int)))
			if err != nil || !image && !(&cgroup.Tree{}).Resolve("a", row.Value.Field, row.Value.Key).Same(now, row.Want) || row.State == Refused {
				t.Errorf("%v: %+v: kernel %q, %v", v, row, now, err)
			}
		}
	}
}

// TestCostOfAMove limits the cost of a change of many cpusets.
func TestCostOfAMove(t *testing.T) {
	const n = 100
	for _, v := range versions {
		r, c, batches := many(t, v, n)
		r.Apply(batches[0])
		for i := range 4 {
			c.reads.Store(0)
			c.writes.Store(0)
			r.Apply(batches[(i+1)%2])
			if reads, writes := c.reads.Load(), c.writes.Load(); reads != n || writes != n {
				t.Errorf("%v: %d reads and %d writes for %d containers", v, reads, writes, n)
			}
		}
	}
}

// many makes n containers and two batches that give them more and fewer CPUs.
func many(tb testing.TB, v cgroup.Version, n int) (*rig, *counting, [2][]Item) {
	tb.Helper()
	r, c := countedRig(tb, v)
	r.fake.OnWrite(nil)
	var batches [2][]Item
	for i := range n {
		dir := fmt.Sprintf("kubepods/pod%d/c", i)
		if err := r.fake.MkdirRunc(dir); err != nil {
			tb.Fatal(err)
		}
		batches[0] = append(batches[0], cpus(dir, "0-3"))
		batches[1] = append(batches[1], cpus(dir, "0-5"))
	}
	return r, c, batches
}

func BenchmarkMove(b *testing.B) {
	for _, v := range versions {
		b.Run(v.String(), func(b *testing.B) {
			const n = 250
			r, c, batches := many(b, v, n)
			r.Apply(batches[0])
			c.reads.Store(0)
			c.writes.Store(0)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				r.Apply(batches[i%2])
			}
			per := float64(b.N * n)
			b.ReportMetric(float64(c.reads.Load())/per, "reads/container")
			b.ReportMetric(float64(c.writes.Load())/per, "writes/container")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/per, "ns/container")
		})
	}
}

// TestLegalBursts changes between states in which no burst is above its quota. The kernel refuses every
// other intermediate state, so no write is refused.
func TestLegalBursts(t *testing.T) {
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r, c := countedRig(t, v)
			for range rapid.IntRange(1, 8).Draw(rt, "steps") {
				quota := int64(-1)
				burst := rapid.Int64Range(0, 50).Draw(rt, "burst") * 1000
				if rapid.Bool().Draw(rt, "limited") {
					quota = burst + rapid.Int64Range(1, 50).Draw(rt, "more")*1000
				}
				batch := []Item{
					num("p0/a", lifecycle.CPUQuota, quota), unified("p0/a", burstKey, fmt.Sprint(burst)),
					num("p0/a", lifecycle.CPUPeriod, rapid.SampledFrom([]int64{20000, 50000, 100000}).Draw(rt, "period")),
				}
				for _, o := range r.Apply(rapid.Permutation(batch).Draw(rt, "batch")) {
					if o.State != Applied && o.State != Unchanged {
						rt.Errorf("%v: quota %d, burst %d: %s %v: %v", v, quota, burst, o.Value.Field, o.State, o.Err)
					}
				}
			}
			if len(c.refused) > 0 {
				rt.Errorf("%v: refused %q", v, c.refused)
			}
		})
	}
}

// TestIdleAndWeight changes between states of cpu.idle and weight, in one batch or in two, and releases
// both at the end. No write is refused, a cgroup that is not idle has the desired weight, and the release
// restores the original values.
func TestIdleAndWeight(t *testing.T) {
	for _, v := range versions {
		rapid.Check(t, func(rt *rapid.T) {
			r, c := countedRig(t, v)
			found := rapid.SampledFrom([]int64{2, 1024, 5000}).Draw(rt, "found")
			must(r.tree.Write("p0/a", lifecycle.Value{Field: lifecycle.CPUShares, Int: found}))
			before, err := r.tree.Read("p0/a", lifecycle.CPUShares, "")
			must(err)
			idle, shares := "", int64(0)
			for range rapid.IntRange(1, 8).Draw(rt, "steps") {
				var batch []Item
				if what := rapid.IntRange(0, 2).Draw(rt, "what"); what != 0 {
					idle = rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "idle")
					batch = append(batch, unified("p0/a", idleKey, idle))
					if what == 2 {
						shares = 0
					}
				}
				if len(batch) == 0 || shares == 0 {
					shares = rapid.Int64Range(2, 4000).Draw(rt, "shares")
					batch = append(batch, num("p0/a", lifecycle.CPUShares, shares))
				}
				r.Apply(rapid.Permutation(batch).Draw(rt, "batch"))
				if rapid.Bool().Draw(rt, "settle") {
					r.Reconcile("p0/a")
				}
				text, err := r.tree.Read("p0/a", lifecycle.CPUShares, "")
				want, _ := (&cgroup.Tree{Version: v}).Resolve("a", lifecycle.CPUShares, "").Encode(lifecycle.Value{Field: lifecycle.CPUShares, Int: shares})
				curve := weightText(cgroup.RuntimeWeight(shares)) // which a runtime may have written
				if idle != "1" && (err != nil || text != want && (v == cgroup.V1 || text != curve)) {
					rt.Errorf("%v: idle %q, shares %d: the weight is %q, want %q (%v)", v, idle, shares, text, want, err)
				}
			}
			for _, o := range r.ReleaseAll() {
				if o.Err != nil {
					rt.Errorf("%v: released: %+v", v, o)
				}
			}
			if text, err := r.tree.Read("p0/a", lifecycle.CPUShares, ""); err != nil || text != before {
				rt.Errorf("%v: after the release the weight is %q, found %q (%v)", v, text, before, err)
			}
			if len(c.refused) > 0 {
				rt.Errorf("%v: refused %q", v, c.refused)
			}
		})
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
