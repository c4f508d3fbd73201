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

// compare orders settings by cgroup, field and key.
func (p fileKey) compare(o fileKey) int {
	return cmp.Or(cmp.Compare(p.dir, o.dir), cmp.Compare(p.field, o.field), cmp.Compare(p.key, o.key))
}

func (p fileKey) depth() int { return strings.Count(p.dir, "/") }

func (p fileKey) isList() bool {
	return p.field == lifecycle.CPUSetCPUs || p.field == lifecycle.CPUSetMems
}

func (p fileKey) isPartition() bool {
	return p.field == lifecycle.Unified && (p.key == cgroup.ExclusiveFile || p.key == cgroup.PartitionFile)
}

// isBandwidth reports whether the setting is a quota or a period, which are written together.
func (p fileKey) isBandwidth() bool {
	return p.field == lifecycle.CPUQuota || p.field == lifecycle.CPUPeriod
}

// isCpusetFile reports whether the file keeps containers off the CPUs and memory nodes that other containers own. The
// keeper never leaves such a file to another program, even if the CPUs in the list have no owner now: a later owner may
// get them.
func (p fileKey) isCpusetFile() bool { return p.isList() || p.isPartition() }

// setting returns a name for metrics, from a limited set: the field, the file if it is in cgroup.Settings, or
// "other".
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

// desiredValue is the desired value of a row, which a job applies.
type desiredValue struct {
	target     Target
	value      lifecycle.Value
	text       string // the kernel text of value
	generation uint64 // the value of table.generation when the desired value was recorded
	// releasing means that text is the original, and that the keeper drops the row when the original is in
	// force.
	releasing bool
}

// row is one setting of a cgroup with its desired value. Keeper.mu guards all fields except writing, fileKey and
// handle.
type row struct {
	fileKey
	desiredValue
	handle         cgroup.Handle // the file's handle, resolved once
	waitsForCgroup bool          // if releasing: keep the row until its cgroup exists
	history        history
	// shownText is what the kernel shows for text, if the two differ.
	shownText string
	foreign   foreignWrites
	// journalHash is a hash of the row's last line in the journal.
	journalHash uint64
	// cededReason is the reason why the keeper does not write the row: the value belongs to another program.
	cededReason error
	// kernel is the text that the keeper last read in the file. verified means that this text was in force;
	// another program may have changed the file since.
	kernel   string
	verified bool
	state    State // the state of the desired value
	err      error // the reason for the state; nil if there is none

	// writing is held during a write of the row's file. The rows of quota and period share one mutex.
	writing *sync.Mutex
}

// originalText returns the original text of the file if it is known: the text that the keeper found in the file, or
// else the text of the reported request.
func (p history) originalText() (string, bool) {
	switch {
	case p.Original != nil:
		return *p.Original, true
	case p.Requested != nil:
		return *p.Requested, true
	}
	return "", false
}

// cede leaves the file to another program, for the reason in err.
func (r *row) cede(err error) { r.cededReason, r.state, r.err = err, Ceded, err }

// drifted reports whether a text differs from the text that was last found in force.
func (r *row) drifted(text string) bool { return r.verified && !r.handle.Same(text, r.kernel) }

// index finds rows by a string. The rows of a list are never changed in place, since another goroutine may be reading
// the list.
type index map[string][]*row

func (x index) add(key string, r *row) { x[key] = append(x[key], r) }

func (x index) remove(key string, r *row) {
	x[key] = slices.DeleteFunc(slices.Clone(x[key]), func(o *row) bool { return o == r })
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// table has the rows of all settings with a desired value. Keeper.mu guards it.
type table struct {
	rows       map[fileKey]*row
	byOwner    index         // the same rows
	generation uint64        // counts the changes of desired values
	failed     map[*row]bool // rows that were refused with a temporary error
	// partitionRows are the rows of the files of cpuset partitions. orphans are the keys of such files
	// whose owner was forgotten, and whose cgroup may still exist.
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

// idle returns the row of cpu.idle of a cgroup; nil if there is none.
func (t *table) idle(dir string) *row { return t.rows[fileKey{dir, lifecycle.Unified, idleKey}] }

// lock returns the mutex for the writes of a new row. Quota and period of a cgroup share one mutex.
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

// record adds a batch to the table, and makes the jobs. itemJobs has the job of each item. If a batch has two items for
// one setting, the later item counts, and both have its job. out has the outcomes of items without a job.
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
		j.desiredValue = r.desiredValue
		// The original must be read before the first write.
		j.verifiedText, j.kernelTextKnown = r.kernel, r.verified && (r.history.Original != nil || r.history.RuntimeMayHaveWritten)
		itemJobs[i] = j
	}
	return jobs, out, itemJobs
}

// recordLocked makes the value of an item, with the kernel text want, the desired value of its row.
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
	r.history.RuntimeMayHaveWritten = r.history.RuntimeMayHaveWritten || (item.RuntimeMayHaveWritten || k.Originals.originalsLost && p.isPartition()) && r.history.Original == nil
	k.noteRequestLocked(r, item)
	if idle := t.idle(p.dir); p.field == lifecycle.CPUShares && idle != nil {
		// history.Weight is the weight from before cpu.idle was 1, which the kernel has forgotten.
		k.Originals.keepIfMissing(r, idle.history.Weight)
	}
	if item.Restore {
		if text, known := r.history.originalText(); known {
			want = text
		}
	} else if want != r.text {
		r.cededReason, r.foreign.windowWrites, r.foreign.pause = nil, 0, 0 // a new value ends an earlier write conflict
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

// noteRequestLocked stores the reported request. A new request replaces the text that was found in the file earlier as
// the original.
func (k *Keeper) noteRequestLocked(r *row, item Item) {
	if item.Requested == nil {
		return
	}
	value := item.Requested.String()
	if r.history.Requested != nil && r.history.RequestedValue != value {
		r.history.Original, r.history.RuntimeMayHaveWritten = nil, true
	}
	var text string
	var err error
	if !r.isList() || item.Requested.Text != "" {
		text, err = k.encode(r.handle, item.Target, *item.Requested)
	}
	if r.history.Requested, r.history.RequestedValue = &text, value; err != nil {
		r.history.Requested, r.history.RequestedValue = nil, ""
	}
}

// leaveLocked leaves a value in the kernel if the value should be restored but its original is not known. It returns
// Pending if the caller must record and write the item.
func (k *Keeper) leaveLocked(item Item, at cgroup.Handle, want string) (State, error) {
	if !item.Restore || !item.RequestUnknown || item.Requested != nil {
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
	err := at.OpError("release", want, ErrOriginalUnknown)
	if r != nil {
		r.cede(err)
	}
	return Ceded, err
}
