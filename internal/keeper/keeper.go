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
	// Originals are the values from before the first write, also across restarts.
	Originals *Originals

	tree *cgroup.Tree
	// newerWeightCurve reports that this node's runtime maps containers' shares to weights by the newer
	// curve. The keeper learns that from the weights that the runtime writes, and uses the
	// kubelet's formula until then.
	newerWeightCurve atomic.Bool
	// observing means that the keeper writes nothing (see Observe).
	observing bool

	// lists is held while CPU and memory node lists are recorded and written, so that batches do
	// not mix. A cgroup may get only CPUs that other cgroups have lost already. The writes take
	// microseconds. Other files wait only for their own row (row.writing), since a lower memory
	// limit may make the kernel reclaim for seconds.
	lists sync.Mutex

	mu     sync.Mutex // guards the fields below
	table  *table
	counts Tally
	watch  watch
	actors actors
}

// New makes a keeper for the files of a tree.
func New(tree *cgroup.Tree) *Keeper {
	k := &Keeper{
		tree:   tree,
		table:  &table{rows: map[fileKey]*row{}, byOwner: index{}, failed: map[*row]bool{}, partitionRows: map[fileKey]*row{}},
		counts: Tally{Results: map[State]uint64{}},
	}
	k.watch = watch{
		mu: &k.mu, now: time.Now, files: index{}, dirs: index{}, dirChanges: map[string]bool{}, changed: make(chan struct{}, 1),
	}
	k.actors = actors{tree: tree, mu: &k.mu, counts: &k.counts, byField: map[lifecycle.Field]Actor{}, wanted: map[string][]Item{}}
	k.Originals = &Originals{tree: tree, mu: &k.mu, table: k.table, remembered: map[fileKey]origin{}, partitions: map[fileKey]cgroup.IDs{}, existedAtLoss: map[string]bool{}, seed: maphash.MakeSeed()}
	return k
}

// Tree returns the cgroup tree that the keeper writes.
func (k *Keeper) Tree() *cgroup.Tree { return k.tree }

// Apply records desired values and writes those that differ from the kernel's. Values that
// shrink come before values that grow; children shrink before parents and grow after them. It
// returns one outcome per item, in their order. A value that cannot be encoded is refused and
// not recorded.
func (k *Keeper) Apply(batch []Item) []Outcome {
	out, _ := k.apply(batch, false)
	return out
}

func (k *Keeper) apply(batch []Item, urgent bool) ([]Outcome, *Deferred) {
	sets := k.hasOrphans() || slices.ContainsFunc(batch, func(item Item) bool { return item.key().keepsApart() })
	var jobs, itemJobs, later []*job
	var out []Outcome
	func() {
		if sets {
			k.lists.Lock()
			defer k.lists.Unlock()
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
	return done, &Deferred{k: k, jobs: later}
}

// Deferred has the writes that ApplyUrgent postponed. A nil Deferred has no writes.
type Deferred struct {
	k    *Keeper
	jobs []*job
}

// Apply makes the postponed writes, and returns one outcome per row.
func (r *Deferred) Apply() []Outcome {
	if r == nil {
		return nil
	}
	r.k.lists.Lock()
	defer r.k.lists.Unlock()
	runLists(r.jobs)
	r.k.Originals.flush()
	return outcomes(r.jobs)
}

// ApplyUrgent is Apply for a caller that only needs cgroups to have lost the CPUs taken from
// them. If partitions of the same batch take these CPUs, it postpones the lists of cgroups that
// lose no other CPUs. The caller must apply the postponed lists before the next decision. The
// outcomes are those of the writes that were made.
func (k *Keeper) ApplyUrgent(batch []Item) ([]Outcome, *Deferred) { return k.apply(batch, true) }

// Note records desired values without writing them. The runtime gets these values in an answer,
// and the cgroup may not exist yet.
func (k *Keeper) Note(batch []Item) {
	k.mu.Lock()
	k.actors.note(batch)
	for _, item := range batch {
		if k.actors.byField[item.Value.Field] != nil {
			continue
		}
		at := k.resolve(item.key())
		want, err := k.encode(at, item.Target, item.Value)
		item.Carried = !item.Restore
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

// Reconcile reads all files of one owner again and writes the desired values that the kernel
// lacks. Call it when a container has started, after a refusal, and to find foreign changes.
func (k *Keeper) Reconcile(owner string) []Outcome {
	return append(k.rewrite(false, owner), k.actors.applyOwner(owner)...)
}

// Repair is Reconcile for the cgroup files of several owners, in one order that the kernel
// accepts. It counts repairs as write conflicts. A contested file is not written before its
// pause ends.
func (k *Keeper) Repair(owners ...string) []Outcome { return k.rewrite(true, owners...) }

// RetryFailed writes the values of the owners in Failed again, all together in an order that the kernel accepts.
func (k *Keeper) RetryFailed() []Outcome {
	owners := k.FailedOwners()
	if len(owners) == 0 {
		return nil
	}
	return k.rewrite(false, owners...)
}

// rewrite writes desired values of owners that the kernel lacks. If watched is set, it skips
// contested files whose pause has not ended.
func (k *Keeper) rewrite(watched bool, owners ...string) []Outcome {
	return k.sync(true, func() (jobs []*job) {
		for _, owner := range owners {
			jobs = append(jobs, k.pick(slices.Values(k.table.byOwner[owner]), func(r *row) bool {
				_, paused := k.watch.paused(r)
				return (r.text != "" || r.releasing) && (!watched || !paused)
			})...)
		}
		for _, j := range jobs {
			j.watched = watched
		}
		return jobs
	})
}

// sync writes the rows that match, in one order that the kernel accepts. If failed is set, it
// adds the lists that failed before.
func (k *Keeper) sync(failed bool, pick func() []*job) []Outcome {
	var jobs []*job
	func() {
		k.lists.Lock()
		defer k.lists.Unlock()
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

// Forget drops the rows of an owner that has ended, and writes nothing. It keeps the originals
// while the cgroup exists. Runtimes may report the end of containers that still run, as
// containerd does if it cannot reach a shim after a restart. A release restores the values of
// these containers, too.
func (k *Keeper) Forget(owner string) {
	k.actors.forget(owner)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.table.byOwner[owner] {
		k.table.remove(r)
		k.watch.set(r, false)
		if r.isPartition() {
			k.table.orphans = append(k.table.orphans, r.fileKey)
		}
		if r.verified && r.ceded == nil {
			k.Originals.remember(r)
		}
	}
	delete(k.table.byOwner, owner)
}

// dropLocked removes a row from the table.
func (k *Keeper) dropLocked(r *row) {
	k.table.remove(r)
	k.table.byOwner.remove(r.target.Owner, r)
	k.watch.set(r, false)
	k.Originals.noteGone(r)
}
