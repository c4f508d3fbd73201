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
	// Originals has the values from before the agent's first write. A journal keeps them across restarts.
	Originals *Originals

	tree *cgroup.Tree
	// newerWeightCurve means that this node's runtime maps containers' shares to weights by the newer curve
	// (cgroup.RuntimeWeight). The keeper learns that from the weights that the runtime writes, and uses the
	// kubelet's formula (cgroup.Weight) until then.
	newerWeightCurve atomic.Bool
	// observing means that the keeper writes nothing (see Keeper.Observe).
	observing bool

	// listsMu is held while lists of CPUs and memory nodes are recorded and written, so that two batches do not
	// mix: a cgroup may get only CPUs that other cgroups have lost already. These writes take microseconds. A write
	// of another file waits only for writes of the same row (row.writing), since a lower memory limit may make
	// the kernel reclaim for seconds.
	listsMu sync.Mutex

	mu      sync.Mutex // guards the fields below
	table   *table
	counts  Tally
	watched watchedFiles
	actors  actors
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
	k.Originals = &Originals{tree: tree, mu: &k.mu, table: k.table, remembered: map[fileKey]origin{}, rememberedCPUs: map[fileKey]cgroup.IDs{}, cgroupsAtLoss: map[string]bool{}, seed: maphash.MakeSeed()}
	return k
}

// Tree returns the cgroup tree that the keeper writes.
func (k *Keeper) Tree() *cgroup.Tree { return k.tree }

// Apply records desired values and writes those that differ from the kernel's. It writes values that shrink before
// values that grow. A child cgroup shrinks before its parent and grows after it. Apply returns one outcome per item,
// in the order of the items. It refuses a value that cannot be encoded, and does not record it.
func (k *Keeper) Apply(batch []Item) []Outcome {
	out, _ := k.apply(batch, false)
	return out
}

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
			later = k.runSets(k.withFailed(jobs), urgent)
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

// DeferredWrites has the writes that Keeper.ApplyUrgent postponed. A nil DeferredWrites has no writes.
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

// ApplyUrgent is Apply for a caller that waits only until cgroups have lost the CPUs that other containers get. If
// cpuset partitions of the same batch take these CPUs, ApplyUrgent postpones the lists of cgroups that lose no other
// CPUs. The caller must call DeferredWrites.Apply before the next decision. The outcomes do not include postponed
// writes.
func (k *Keeper) ApplyUrgent(batch []Item) ([]Outcome, *DeferredWrites) { return k.apply(batch, true) }

// Note records desired values without writing them, because the runtime gets these values in an answer and writes
// them. The cgroup may not exist yet.
func (k *Keeper) Note(batch []Item) {
	k.mu.Lock()
	k.actors.note(batch)
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
		k.Originals.note(r)
	}
	k.mu.Unlock()
	k.Originals.flush()
}

// Reconcile reads all files of one owner again and writes the desired values that the kernel lacks. Call it when a
// container has started, after a refusal, and to find changes by other programs.
func (k *Keeper) Reconcile(owner string) []Outcome {
	return append(k.rewrite(false, owner), k.actors.applyOwner(owner)...)
}

// Repair is Reconcile for the cgroup files of several owners, all together in an order that the kernel accepts. It
// counts repairs as write conflicts. It does not write a contested file before the pause of that file ends.
func (k *Keeper) Repair(owners ...string) []Outcome { return k.rewrite(true, owners...) }

// RetryFailed writes the values of FailedOwners again, all together in an order that the kernel accepts.
func (k *Keeper) RetryFailed() []Outcome {
	owners := k.FailedOwners()
	if len(owners) == 0 {
		return nil
	}
	return k.rewrite(false, owners...)
}

// rewrite writes the desired values of owners that the kernel lacks. If repair is set, the caller repairs changes by
// other programs. rewrite then skips contested files whose pause has not ended.
func (k *Keeper) rewrite(repair bool, owners ...string) []Outcome {
	return k.sync(true, func() (jobs []*job) {
		for _, owner := range owners {
			jobs = append(jobs, k.pick(slices.Values(k.table.byOwner[owner]), func(r *row) bool {
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

// sync writes the rows for which pick makes jobs, all together in an order that the kernel accepts. If failed is set,
// it adds the lists that failed before.
func (k *Keeper) sync(failed bool, pick func() []*job) []Outcome {
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
			sets = k.withFailed(jobs)
		}
		k.runSets(sets, false)
	}()
	runScalars(jobs)
	k.Originals.flush()
	return outcomes(jobs)
}

// Forget drops the rows of an owner that has ended, and writes no cgroup file. It keeps the originals while the cgroup
// exists, because runtimes may report the end of containers that still run: containerd does so if it cannot reach a
// shim after a restart. A release restores the values of these containers, too.
func (k *Keeper) Forget(owner string) {
	k.actors.forget(owner)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.table.byOwner[owner] {
		k.table.remove(r)
		k.watched.set(r, false)
		if r.isPartition() {
			k.table.orphans = append(k.table.orphans, r.fileKey)
		}
		if r.verified && r.cededReason == nil {
			k.Originals.remember(r)
		}
	}
	delete(k.table.byOwner, owner)
}

// dropLocked removes a row from the table.
func (k *Keeper) dropLocked(r *row) {
	k.table.remove(r)
	k.table.byOwner.remove(r.target.Owner, r)
	k.watched.set(r, false)
	k.Originals.noteTextRemoved(r)
}
