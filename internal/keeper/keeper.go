package keeper

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Keeper writes desired values to cgroups and keeps them in force. Its methods may be called by several goroutines
// concurrently.
type Keeper struct {
	// Originals has the values from before the agent's first write. A journal stores them for the next run of the
	// agent.
	Originals *Originals

	tree *cgroup.Tree
	// newerWeightCurve means that this node's runtime converts the shares of containers to weights by the newer curve
	// (cgroup.RuntimeWeight). If it is false, the keeper uses the kubelet's formula (cgroup.Weight). The keeper
	// changes it when it reads a weight that only one of the two formulas gives.
	newerWeightCurve atomic.Bool
	// observing means that the keeper writes nothing (see Keeper.Observe).
	observing bool

	// listsMu is held while lists of CPUs and memory nodes are recorded and written, so that two batches do not
	// mix: a cgroup may get only CPUs that other cgroups have lost already. These writes take microseconds. A write
	// of another file waits only for writes of the same row (row.writing), since a lower memory limit may make
	// the kernel reclaim for seconds.
	listsMu sync.Mutex

	mu      sync.Mutex   // guards the fields below
	table   *table       // all settings with a desired value
	counts  Tally        // see Keeper.Tally
	watched watchedFiles // the files with values in force
	actors  actors       // the actors, and the values that they apply
}

// New makes a keeper for the files of a tree.
func New(tree *cgroup.Tree) *Keeper {
	k := &Keeper{
		tree:   tree,
		table:  &table{rows: map[fileKey]*row{}, byOwner: index{}, failed: map[*row]bool{}, partitionRows: map[fileKey]*row{}},
		counts: Tally{Results: map[State]uint64{}},
	}
	k.watched = watchedFiles{
		mu: &k.mu, now: time.Now, files: index{}, dirs: index{}, dirChanges: map[string]bool{}, changed: make(chan struct{}, 1),
	}
	k.actors = actors{tree: tree, mu: &k.mu, counts: &k.counts, byField: map[lifecycle.Field]Actor{}, itemsByOwner: map[string][]Item{}}
	k.Originals = &Originals{tree: tree, mu: &k.mu, table: k.table, leftovers: map[fileKey]origin{}, leftoverCPUs: map[fileKey]cgroup.IDs{}, cgroupsAtLoss: map[string]bool{}, seed: maphash.MakeSeed()}
	return k
}

// Tree returns the cgroup tree that the keeper writes.
func (k *Keeper) Tree() *cgroup.Tree { return k.tree }

// Apply records desired values, and writes the values that differ from the values in the kernel. It writes values that
// shrink before values that grow. A child cgroup shrinks before its parent and grows after its parent. Apply returns
// one outcome per item, in the order of the items. If a value cannot be converted to a text for its kernel file, Apply
// refuses the value and does not record it.
func (k *Keeper) Apply(batch []Item) []Outcome {
	out, _ := k.apply(batch, false)
	return out
}

// apply does the work of ApplyUrgent if urgent is true, and otherwise the work of Apply.
func (k *Keeper) apply(batch []Item, urgent bool) ([]Outcome, *DeferredWrites) {
	sets := k.hasOrphans() || slices.ContainsFunc(batch, func(item Item) bool { return item.key().isCpusetFile() })
	var jobs, itemJobs, later []*job
	var out []Outcome
	func() {
		if sets {
			k.listsMu.Lock()
			defer k.listsMu.Unlock()
		}
		jobs, out, itemJobs = k.record(batch)
		k.Originals.flush()
		if k.observing {
			observe(jobs)
		} else if sets {
			later = k.runSets(k.addFailedLists(jobs), urgent)
		}
	}()
	runScalars(jobs)
	k.Originals.flush()
	left := map[*job]bool{}
	for _, j := range later {
		left[j] = true
	}
	done := out[:0]
	for i, item := range batch {
		o := out[i]
		switch j := itemJobs[i]; {
		case k.actors.byField[item.Value.Field] != nil:
			o = k.actors.act(item)
		case left[j]:
			continue
		case j != nil:
			o.State, o.Kernel, o.Err = j.state, j.kernel, j.err
		}
		done = append(done, o)
	}
	if len(later) == 0 {
		return done, nil
	}
	return done, &DeferredWrites{k: k, jobs: later}
}

// DeferredWrites has the writes that Keeper.ApplyUrgent postponed. A nil pointer means that there are no such writes.
type DeferredWrites struct {
	k    *Keeper
	jobs []*job
}

// Apply makes the postponed writes, and returns one outcome per row.
func (r *DeferredWrites) Apply() []Outcome {
	if r == nil {
		return nil
	}
	r.k.listsMu.Lock()
	defer r.k.listsMu.Unlock()
	runLists(r.jobs)
	r.k.Originals.flush()
	return outcomes(r.jobs)
}

// ApplyUrgent does the same as Apply, but it can postpone some writes, because the creation of a container waits for
// the caller. It postpones the CPU list of a cgroup if the cgroup only loses CPUs, and cpuset partitions of the same
// batch take all the lost CPUs. The kernel then takes these CPUs from the cgroup even without the write. The outcomes
// do not include postponed writes. The caller must call DeferredWrites.Apply before the next decision.
func (k *Keeper) ApplyUrgent(batch []Item) ([]Outcome, *DeferredWrites) { return k.apply(batch, true) }

// RecordOnly records desired values and does not write them. It is for values that the runtime gets in the agent's
// answer and writes itself. The cgroup may not exist yet.
func (k *Keeper) RecordOnly(batch []Item) {
	k.mu.Lock()
	k.actors.storeItems(batch)
	for _, item := range batch {
		if k.actors.byField[item.Value.Field] != nil {
			continue
		}
		at := k.resolve(item.key())
		want, err := k.encode(at, item.Target, item.Value)
		item.RuntimeMayHaveWritten = !item.Restore
		r := k.recordLocked(item, at, want)
		if err != nil {
			r.state, r.err = Refused, err
			continue
		}
		k.Originals.addLine(r)
	}
	k.mu.Unlock()
	k.Originals.flush()
}

// Reconcile reads all files of one owner again, and writes the desired values that the kernel does not have. Call it
// when a container has started, after a refusal, and to find changes by other programs.
func (k *Keeper) Reconcile(owner string) []Outcome {
	return append(k.rewrite(false, owner), k.actors.applyOwner(owner)...)
}

// Repair reads all cgroup files of several owners, and writes the desired values that the kernel does not have, all
// together in an order that the kernel accepts. It counts each write as a write conflict with another program. After
// many conflicts on a cpuset file, Repair pauses between writes of that file.
func (k *Keeper) Repair(owners ...string) []Outcome { return k.rewrite(true, owners...) }

// RetryFailed writes the values of all owners that have a value whose last write failed with a temporary error. It
// writes all these values together, in an order that the kernel accepts.
func (k *Keeper) RetryFailed() []Outcome {
	owners := k.FailedOwners()
	if len(owners) == 0 {
		return nil
	}
	return k.rewrite(false, owners...)
}

// rewrite writes the desired values of owners that the kernel does not have. If repair is true, the purpose is to
// repair changes by other programs. In this case, rewrite skips each file whose pause between two repairs has not ended
// yet (see Repair).
func (k *Keeper) rewrite(repair bool, owners ...string) []Outcome {
	return k.runJobs(true, func() (jobs []*job) {
		for _, owner := range owners {
			jobs = append(jobs, k.makeJobs(slices.Values(k.table.byOwner[owner]), func(r *row) bool {
				_, paused := k.watched.nextRepair(r)
				return (r.text != "" || r.releasing) && (!repair || !paused)
			})...)
		}
		for _, j := range jobs {
			j.isRepair = repair
		}
		return jobs
	})
}

// runJobs runs the jobs that the function pick returns, all together in an order that the kernel accepts. If failed is
// true, runJobs also writes the CPU and memory node lists whose last write failed with a temporary error.
func (k *Keeper) runJobs(failed bool, pick func() []*job) []Outcome {
	var jobs []*job
	func() {
		k.listsMu.Lock()
		defer k.listsMu.Unlock()
		k.mu.Lock()
		jobs = pick()
		k.mu.Unlock()
		if k.observing {
			observe(jobs)
			return
		}
		sets := jobs
		if failed {
			sets = k.addFailedLists(jobs)
		}
		k.runSets(sets, false)
	}()
	runScalars(jobs)
	k.Originals.flush()
	return outcomes(jobs)
}

// Forget drops the rows of an owner that has ended, and writes no cgroup file. It does not drop the originals while the
// cgroup exists, because a runtime may report the end of a container that still runs. containerd does so if it cannot
// reach a shim after a restart. ReleaseAll can then restore the values of this container, too.
func (k *Keeper) Forget(owner string) {
	k.actors.forget(owner)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.table.byOwner[owner] {
		k.table.remove(r)
		k.watched.setWatched(r, false)
		if r.isPartition() {
			k.table.orphans = append(k.table.orphans, r.fileKey)
		}
		if r.verified && r.cededReason == nil {
			k.Originals.addEnded(r)
		}
	}
	delete(k.table.byOwner, owner)
}

// dropLocked removes a row from the table.
func (k *Keeper) dropLocked(r *row) {
	k.table.remove(r)
	k.table.byOwner.remove(r.target.Owner, r)
	k.watched.setWatched(r, false)
	k.Originals.noteTextRemoved(r)
}
