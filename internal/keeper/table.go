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
	dir   string // the cgroup's directory, relative to the root of the cgroup tree
	field lifecycle.Field
	key   string // lifecycle.Value.Key, such as the file's name for the field Unified; "" for most fields
}

// key returns the key of the item's setting.
func (i Item) key() fileKey { return fileKey{i.Target.Dir, i.Value.Field, i.Value.Key} }

// compare orders settings by cgroup, field and key. Its result is that of cmp.Compare.
func (p fileKey) compare(o fileKey) int {
	return cmp.Or(cmp.Compare(p.dir, o.dir), cmp.Compare(p.field, o.field), cmp.Compare(p.key, o.key))
}

// depth returns the depth of the cgroup in the tree.
func (p fileKey) depth() int { return strings.Count(p.dir, "/") }

// isList reports whether the setting is a list of CPUs or memory nodes.
func (p fileKey) isList() bool {
	return p.field == lifecycle.CPUSetCPUs || p.field == lifecycle.CPUSetMems
}

// isPartition reports whether the setting is one of the two files of a cpuset partition.
func (p fileKey) isPartition() bool {
	return p.field == lifecycle.Unified && (p.key == cgroup.ExclusiveFile || p.key == cgroup.PartitionFile)
}

// isBandwidth reports whether the setting is a quota or a period, which are written together.
func (p fileKey) isBandwidth() bool {
	return p.field == lifecycle.CPUQuota || p.field == lifecycle.CPUPeriod
}

// isCpusetFile reports whether the setting is a file of the controller cpuset. These files separate containers from the
// CPUs and memory nodes of other containers, so the keeper never leaves such a file to another program, even if
// the CPUs in the list have no owner now: a later owner may get them.
func (p fileKey) isCpusetFile() bool { return p.isList() || p.isPartition() }

// setting returns the name of the setting for metrics: the name of the field or, for the field Unified, the name of the
// file. It returns "other" for files that are not in cgroup.Settings, so that the number of names is limited.
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

// desiredValue is the desired value of a row, which a job writes to the kernel.
type desiredValue struct {
	target     Target
	value      lifecycle.Value
	text       string // the kernel text of value
	generation uint64 // the value of table.generation when the desired value was recorded
	// releasing means that the keeper restores the original and then drops the row. The field text then has the
	// original.
	releasing bool
}

// row is one setting of a cgroup with its desired value. Keeper.mu guards all fields except writing, fileKey and
// handle.
type row struct {
	fileKey
	desiredValue
	handle         cgroup.Handle // the file's handle
	waitsForCgroup bool          // if releasing is true and the cgroup does not exist yet, the row is kept and restored later
	history        history
	// shownText is the text that the kernel showed in the file after the keeper wrote the field text; "" if the two
	// mean the same value.
	shownText string
	foreign   foreignWrites // the writes of other programs to the file
	// journalHash is a hash of the row's last line in the journal.
	journalHash uint64
	// cededReason is the reason why the keeper leaves the file to another program and does not write it. It is nil
	// if the keeper writes the file.
	cededReason error
	// kernel is the text that the file had when the keeper last found the desired value in force. verified means
	// that the last write or read found the desired value in force. Another program may have changed the file since.
	kernel   string
	verified bool
	state    State // the state of the desired value
	err      error // the reason for the state; nil if there is none

	// writing is held during a write of the row's file. The rows of quota and period share one mutex.
	writing *sync.Mutex
}

// originalText returns the original text of the file, and whether the text is known. It is the text that the keeper
// found in the file or, if there is none, the text of the value that the runtime reported as requested.
func (p history) originalText() (string, bool) {
	switch {
	case p.Original != nil:
		return *p.Original, true
	case p.Requested != nil:
		return *p.Requested, true
	}
	return "", false
}

// cede makes the keeper leave the file to another program, for the reason in err.
func (r *row) cede(err error) { r.cededReason, r.state, r.err = err, Ceded, err }

// drifted reports whether another program has changed the file since the keeper last verified it. The parameter text is
// the present text of the file.
func (r *row) drifted(text string) bool { return r.verified && !r.handle.Same(text, r.kernel) }

// index finds rows by a string, such as the path of a file. A slice of rows is never changed in place, since another
// goroutine may be reading the slice.
type index map[string][]*row

// add adds a row to the rows of a key.
func (x index) add(key string, r *row) { x[key] = append(x[key], r) }

// remove removes a row from the rows of a key.
func (x index) remove(key string, r *row) {
	x[key] = slices.DeleteFunc(slices.Clone(x[key]), func(o *row) bool { return o == r })
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// table has the rows of all settings with a desired value. Keeper.mu guards it.
type table struct {
	rows       map[fileKey]*row
	byOwner    index         // the same rows, by the id of the container or pod
	generation uint64        // counts the changes of desired values
	failed     map[*row]bool // rows whose last write failed with a temporary error
	// partitionRows has the rows of all files of cpuset partitions. orphans has the keys of those partition files whose
	// owner the keeper has forgotten (see Keeper.Forget). The cgroups of these files possibly still exist.
	partitionRows map[fileKey]*row
	orphans       []fileKey
}

// add adds a row to rows and, for a file of a partition, to partitionRows. It does not change byOwner.
func (t *table) add(r *row) {
	t.rows[r.fileKey] = r
	if r.isPartition() {
		t.partitionRows[r.fileKey] = r
	}
}

// remove removes a row from all maps except byOwner.
func (t *table) remove(r *row) {
	delete(t.rows, r.fileKey)
	delete(t.partitionRows, r.fileKey)
	delete(t.failed, r)
}

// idleRow returns the row of the file cpu.idle of a cgroup, or nil if the file has no desired value.
func (t *table) idleRow(dir string) *row { return t.rows[fileKey{dir, lifecycle.Unified, idleKey}] }

// writeLock returns the mutex for the field writing of a new row. Quota and period of a cgroup share one mutex.
func (t *table) writeLock(p fileKey) *sync.Mutex {
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
	// The keeper writes text. value is only for status, and has no content if the text cannot be decoded.
	r.value, _ = cgroup.Decode(v, r.field, r.key, r.text)
}

// makeJobs makes jobs for the rows that match, in a fixed order.
func (k *Keeper) makeJobs(rows iter.Seq[*row], match func(*row) bool) []*job {
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

// encode returns the kernel text of a value.
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

// record adds the items of a batch to the table, and makes the jobs. itemJobs has, for each item of the batch, the
// item's job, or nil. If two items have the same setting, the later item counts, and both items have the same job. For
// items without a job, out has the outcomes.
func (k *Keeper) record(batch []Item) (jobs []*job, out []Outcome, itemJobs []*job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.actors.storeItems(batch)
	jobs, out, itemJobs = make([]*job, 0, len(batch)), make([]Outcome, len(batch)), make([]*job, len(batch))
	byRow := make(map[*row]*job, len(batch))
	var last lifecycle.Value // the last list, cached with its text, since many containers have the same list
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
		k.Originals.addLine(r)
		j := byRow[r]
		if j == nil {
			j = k.newJob(r)
			byRow[r] = j
			jobs = append(jobs, j)
		}
		j.desiredValue = r.desiredValue
		// Before the first write, the job must read the original from the file.
		j.verifiedText, j.kernelTextKnown = r.kernel, r.verified && (r.history.Original != nil || r.history.RuntimeMayHaveWritten)
		itemJobs[i] = j
	}
	return jobs, out, itemJobs
}

// recordLocked makes the value of an item the desired value of its row. want is the kernel text of the value.
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
	if idle := t.idleRow(p.dir); p.field == lifecycle.CPUShares && idle != nil {
		// history.Weight is the weight from before cpu.idle was 1, which the kernel does not store.
		k.Originals.storeOriginalIfMissing(r, idle.history.Weight)
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

// newRowLocked adds a row for a setting. If Originals.leftovers has the setting, the row gets the history from there.
func (k *Keeper) newRowLocked(p fileKey, at cgroup.Handle, owner string) *row {
	r := &row{fileKey: p, handle: at, writing: k.table.writeLock(p)}
	k.table.add(r)
	k.table.byOwner.add(owner, r)
	k.Originals.claim(r)
	return r
}

// noteRequestLocked stores the value that the runtime reported as requested. If this value changes, it also becomes the
// original in place of the text that the keeper found in the file earlier.
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

// leaveLocked handles an item that should be restored although its original is not known. The keeper then leaves the
// value in the kernel, and leaveLocked returns Ceded and the reason. If the keeper never wrote the value, it returns
// Forgotten. For all other items it returns Pending, and the caller must record and write the item.
func (k *Keeper) leaveLocked(item Item, at cgroup.Handle, want string) (State, error) {
	if !item.Restore || !item.RequestUnknown || item.Requested != nil {
		return Pending, nil
	}
	r, known := k.table.rows[item.key()], k.Originals.leftovers[item.key()].history
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
