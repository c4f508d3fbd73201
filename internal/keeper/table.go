package keeper

import (
	"cmp"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// fileKey identifies a setting of a cgroup.
type fileKey struct {
	dir   string
	field lifecycle.Field
	key   string
}

func (i Item) key() fileKey { return fileKey{i.Target.Dir, i.Value.Field, i.Value.Key} }

func (p fileKey) compare(o fileKey) int {
	return cmp.Or(cmp.Compare(p.dir, o.dir), cmp.Compare(p.field, o.field), cmp.Compare(p.key, o.key))
}

func (p fileKey) depth() int { return strings.Count(p.dir, "/") }

func (p fileKey) isList() bool {
	return p.field == lifecycle.CPUSetCPUs || p.field == lifecycle.CPUSetMems
}

func (p fileKey) isPartition() bool {
	return p.field == lifecycle.Unified && (p.key == cgroup.Exclusive || p.key == cgroup.Partition)
}

// isBandwidth reports whether it is a quota or a period, which are written together.
func (p fileKey) isBandwidth() bool {
	return p.field == lifecycle.CPUQuota || p.field == lifecycle.CPUPeriod
}

// keepsApart reports whether the file keeps containers off the CPUs and memory nodes that others
// own. The keeper never leaves such a file to another program. This holds even if its list has
// no owned CPU now, since a later owner may get some of its CPUs.
func (p fileKey) keepsApart() bool { return p.isList() || p.isPartition() }

// setting returns a name from a limited set: the field, the file if it is in the table of
// settings, or "other".
func (p fileKey) setting() string {
	if p.field != lifecycle.Unified {
		return p.field.String()
	}
	for _, s := range cgroup.Settings() {
		if s.Field == p.field && s.Key == p.key {
			return p.key
		}
	}
	return "other"
}

// desired is the desired value of a row, which a job applies.
type desired struct {
	target     Target
	value      lifecycle.Value
	text       string // the kernel text of value
	generation uint64
	// releasing reports that text is the original, and that the row is dropped when the original
	// is in force.
	releasing bool
}

// row is one desired value. Keeper.mu guards all fields except writing, fileKey and handle.
type row struct {
	fileKey
	desired
	handle         cgroup.Handle // the file's handle, resolved once
	waitsForCgroup bool          // releasing: the cgroup does not exist yet, so the row waits for it
	history        history
	// shownText is what the kernel shows for text, if the two differ.
	shownText string
	foreign   foreignWrites
	// journalHash is a hash of the row's last line in the journal.
	journalHash uint64
	// ceded is the reason why the keeper does not write the row: the value belongs to another program.
	ceded error
	// kernel is the last text read back, if verified; Reconcile finds later foreign writes.
	kernel   string
	verified bool
	state    State
	err      error

	// writing orders the writes of the row's file. Quota and period share one.
	writing *sync.Mutex
}

// originalText returns the original text of the file if it is known: the text found in the file, or else
// a reported request.
func (p history) originalText() (string, bool) {
	switch {
	case p.Original != nil:
		return *p.Original, true
	case p.Asked != nil:
		return *p.Asked, true
	}
	return "", false
}

// cede leaves the file to another program, for the reason in err.
func (r *row) cede(err error) { r.ceded, r.state, r.err = err, Ceded, err }

// drifted reports whether a text differs from the text that was last found in force.
func (r *row) drifted(text string) bool { return r.verified && !r.handle.Same(text, r.kernel) }

// index finds rows by a string. A list of rows is never changed, since others may be reading
// it.
type index map[string][]*row

func (x index) add(key string, r *row) { x[key] = append(x[key], r) }

func (x index) remove(key string, r *row) {
	x[key] = slices.DeleteFunc(slices.Clone(x[key]), func(o *row) bool { return o == r })
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// table has the desired values. Keeper.mu guards it.
type table struct {
	rows       map[fileKey]*row
	byOwner    index // the same rows
	generation uint64
	failed     map[*row]bool // refused with a temporary error
	// partitionRows are the rows of partitions' files. orphans are the keys of partition files whose
	// owner was forgotten, and whose cgroup may still exist.
	partitionRows map[fileKey]*row
	orphans       []fileKey
}

func (t *table) add(r *row) {
	t.rows[r.fileKey] = r
	if r.isPartition() {
		t.partitionRows[r.fileKey] = r
	}
}

func (t *table) remove(r *row) {
	delete(t.rows, r.fileKey)
	delete(t.partitionRows, r.fileKey)
	delete(t.failed, r)
}

// idle returns the row that makes a cgroup idle; nil if there is none.
func (t *table) idle(dir string) *row { return t.rows[fileKey{dir, lifecycle.Unified, idleKey}] }

// lock returns the lock for the writes of a new row. Quota and period of a cgroup share one lock.
func (t *table) lock(p fileKey) *sync.Mutex {
	if p.isBandwidth() {
		p.field = lifecycle.CPUQuota + lifecycle.CPUPeriod - p.field
	}
	if r := t.rows[p]; r != nil {
		return r.writing
	}
	return new(sync.Mutex)
}

// release makes the original the desired value of a row.
func (t *table) release(r *row, v cgroup.Version) {
	t.generation++
	r.generation, r.releasing, r.waitsForCgroup = t.generation, true, false
	r.text, _ = r.history.originalText()
	// Use the canonical form if there is one, since status also shows the text.
	r.value, _ = cgroup.Decode(v, r.field, r.key, r.text)
}

// pick makes jobs for the rows that match, in a fixed order.
func (k *Keeper) pick(rows iter.Seq[*row], match func(*row) bool) []*job {
	var jobs []*job
	for r := range rows {
		if match(r) {
			jobs = append(jobs, k.newJob(r))
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.compare(b.fileKey) })
	return jobs
}

// resolve returns the handle of a file.
func (k *Keeper) resolve(p fileKey) cgroup.Handle {
	if r := k.table.rows[p]; r != nil {
		return r.handle
	}
	return k.tree.Resolve(p.dir, p.field, p.key)
}

func (k *Keeper) encode(at cgroup.Handle, t Target, v lifecycle.Value) (string, error) {
	text, err := at.Encode(v)
	if err != nil {
		return "", &cgroup.Error{Op: "encode", Path: path.Join(at.Dir, cmp.Or(v.Key, v.Field.String())), Value: v.String(), Err: err}
	}
	if v.Field == lifecycle.CPUShares && k.tree.Version == cgroup.V2 && !t.Parent && k.newerWeightCurve.Load() {
		text = weightText(cgroup.RuntimeWeight(v.Int))
	}
	return text, nil
}

// record adds a batch to the table. If a batch has two items for one setting, the later item
// counts, and both get its job. The returned outcomes are for items without a job.
func (k *Keeper) record(batch []Item) (jobs []*job, out []Outcome, itemJobs []*job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.actors.note(batch)
	jobs, out, itemJobs = make([]*job, 0, len(batch)), make([]Outcome, len(batch)), make([]*job, len(batch))
	byRow := make(map[*row]*job, len(batch))
	var last lifecycle.Value // caches the last list and its text, since the containers of a pool have the same list
	var text string
	for i, item := range batch {
		out[i] = Outcome{Target: item.Target, Value: item.Value}
		if k.actors.byField[item.Value.Field] != nil {
			continue
		}
		at, want := k.resolve(item.key()), text
		if text == "" || item.Value.Field != last.Field || item.Value.Text != last.Text || at.Path == "" {
			var err error
			if want, err = k.encode(at, item.Target, item.Value); err != nil {
				out[i].State, out[i].Err = Refused, err
				continue
			}
			if item.key().isList() {
				last, text = item.Value, want
			}
		}
		if out[i].State, out[i].Err = k.leaveLocked(item, at, want); out[i].State != Pending {
			continue
		}
		r := k.recordLocked(item, at, want)
		k.Originals.note(r)
		j := byRow[r]
		if j == nil {
			j = k.newJob(r)
			byRow[r] = j
			jobs = append(jobs, j)
		}
		j.desired = r.desired
		// The original must be read before the first write.
		j.verifiedText, j.kernelTextKnown = r.kernel, r.verified && (r.history.Original != nil || r.history.Carried)
		itemJobs[i] = j
	}
	return jobs, out, itemJobs
}

func (k *Keeper) recordLocked(item Item, at cgroup.Handle, want string) *row {
	t, p, owner := k.table, item.key(), item.Target.Owner
	r := t.rows[p]
	switch {
	case r == nil:
		r = k.newRowLocked(p, at, owner)
	case r.target.Owner != owner:
		t.byOwner.remove(r.target.Owner, r)
		t.byOwner.add(owner, r)
	}
	t.generation++
	r.generation, r.target, r.value, r.releasing, r.waitsForCgroup = t.generation, item.Target, item.Value, item.Restore, item.Restore
	r.history.Carried = r.history.Carried || (item.Carried || k.Originals.lost && p.isPartition()) && r.history.Original == nil
	k.noteAskedLocked(r, item)
	if idle := t.idle(p.dir); p.field == lifecycle.CPUShares && idle != nil {
		// Weight is the weight before the cgroup was idle, which the kernel has forgotten.
		k.Originals.keepIfMissing(r, idle.history.Weight)
	}
	if item.Restore {
		if text, known := r.history.originalText(); known {
			want = text
		}
	} else if want != r.text {
		r.ceded, r.foreign.n, r.foreign.pause = nil, 0, 0 // the present value may be in force already
	}
	if want != r.text && r.text != "" {
		r.history.LastText, r.shownText = cmp.Or(r.shownText, r.text), ""
	}
	r.text, r.state, r.err = want, Pending, nil
	return r
}

// newRowLocked adds a row, with the history of its setting if an earlier keeper stored one.
func (k *Keeper) newRowLocked(p fileKey, at cgroup.Handle, owner string) *row {
	r := &row{fileKey: p, handle: at, writing: k.table.lock(p)}
	k.table.add(r)
	k.table.byOwner.add(owner, r)
	k.Originals.claim(r)
	return r
}

// noteAskedLocked stores the reported request. A new request replaces the text that was found
// earlier as the original.
func (k *Keeper) noteAskedLocked(r *row, item Item) {
	if item.Asked == nil {
		return
	}
	value := item.Asked.String()
	if r.history.Asked != nil && r.history.AskedFor != value {
		r.history.Original, r.history.Carried = nil, true
	}
	var text string
	var err error
	if !r.isList() || item.Asked.Text != "" {
		text, err = k.encode(r.handle, item.Target, *item.Asked)
	}
	if r.history.Asked, r.history.AskedFor = &text, value; err != nil {
		r.history.Asked, r.history.AskedFor = nil, ""
	}
}

// leaveLocked leaves a value in place if it should be restored but its original is not known. It
// returns Pending if the original is known.
func (k *Keeper) leaveLocked(item Item, at cgroup.Handle, want string) (State, error) {
	if !item.Restore || !item.RequestUnknown || item.Asked != nil {
		return Pending, nil
	}
	r, known := k.table.rows[item.key()], k.Originals.remembered[item.key()].history
	if r != nil {
		known = r.history
	}
	if _, is := known.originalText(); is {
		return Pending, nil
	}
	if r != nil && !r.verified && r.kernel == "" { // never written
		k.dropLocked(r)
		return Forgotten, nil
	}
	err := at.OpError("release", want, ErrUnknown)
	if r != nil {
		r.cede(err)
	}
	return Ceded, err
}
