package keeper

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// job writes one row to the kernel. It has a copy of the row's desired value from the start of
// the work.
type job struct {
	fileKey
	desired
	k   *Keeper
	row *row

	// verifiedText is the last verified text of the file. kernelTextKnown means that the file still has it, as far as
	// the keeper knows, so that read need not read the file. It is never set for a new row.
	verifiedText    string
	kernelTextKnown bool
	found           string // the text in the kernel
	// drifted reports that another program has changed the verified text. watched reports that
	// inotify reported no such change.
	drifted, watched bool
	// extra reports that the job does not belong to the batch. Its cgroup may have CPUs that the
	// batch gives to other cgroups.
	extra bool

	done   bool
	state  State
	kernel string
	err    error
}

func (k *Keeper) newJob(r *row) *job {
	j := &job{fileKey: r.fileKey, desired: r.desired, k: k, row: r}
	if r.ceded != nil {
		r.state, r.err = Ceded, r.ceded
		j.end(Ceded, "", r.ceded)
	}
	return j
}

// alive reports whether the job's value is still the row's desired one. If it is not, the job
// ends: a removed row is not written, and the batch of a newer value writes that value.
func (j *job) alive() bool {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	return j.aliveLocked()
}

func (j *job) aliveLocked() bool {
	switch r := j.k.table.rows[j.fileKey]; {
	case r != j.row:
		j.end(Forgotten, "", nil)
	case r.generation != j.generation:
		j.end(Superseded, "", nil)
	default:
		return true
	}
	return false
}

// read returns the kernel's text. If the verified text is not the desired one, it returns that
// without a read, since the keeper overwrites the file anyway.
func (j *job) read() (string, error) {
	if j.kernelTextKnown && !j.holds(j.verifiedText) {
		return j.verifiedText, nil
	}
	return j.row.handle.Read()
}

// holds reports whether the kernel's text equals the desired value in meaning.
//
// In cgroup v2 a container's shares have two correct weights: by the kubelet's linear formula,
// and by the curve of newer OCI runtimes. The runtime that applied the shares chose one. If the
// keeper wrote the other weight, a write conflict would start, and a pod with both would order
// its containers wrongly. So the keeper learns the formula from the weights that it reads. The
// kubelet writes the weights of pods by its linear formula, so for pods only that formula is
// correct.
func (j *job) holds(kernel string) bool {
	k, same := j.k, j.row.handle.Same(kernel, j.text)
	if k.tree.Version != cgroup.V2 || j.field != lifecycle.CPUShares || j.target.Parent || j.releasing {
		return same
	}
	line, curve := weightText(cgroup.Weight(j.value.Int)), weightText(cgroup.RuntimeWeight(j.value.Int))
	switch {
	case line == curve:
		return same
	case kernel == line:
		k.newerWeightCurve.Store(false)
		return true
	case kernel == curve && j.value.Int == defaultShares:
		// This may be the default weight of a cgroup that no program has written, so the keeper
		// learns no formula from it.
		return k.newerWeightCurve.Load()
	case kernel == curve:
		k.newerWeightCurve.Store(true)
		return true
	}
	return same
}

// defaultShares are the kernel's default.
const defaultShares = 1024

func weightText(w int64) string { return strconv.FormatInt(w, 10) }

// noteSeen notes the kernel's text before the job writes. If the text differs from the last verified
// text, another program wrote it.
func (j *job) noteSeen(text string) {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	j.drifted = j.row.drifted(text)
}

// keepOriginal stores the text from before the first write.
func (j *job) keepOriginal(current string) {
	o := j.k.Originals
	j.k.mu.Lock()
	first := j.row.history.Original == nil && !j.row.history.Carried && !o.mayHaveUnjournaledWrite(j.row)
	if first {
		o.keep(j.row, current)
	}
	j.k.mu.Unlock()
	if first {
		o.flush()
	}
}

// keepFound stores as original a text in the kernel that equals the desired text. If the runtime
// reported a requested value, that request is the original instead, since an earlier agent may
// have written the text.
func (j *job) keepFound(current string) {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	if r, o := j.row, j.k.Originals; r.history.Asked == nil && !r.releasing && !o.mayHaveUnjournaledWrite(r) {
		o.keepIfMissing(r, current)
	}
}

func (j *job) end(s State, kernel string, err error) {
	j.done, j.state, j.kernel, j.err = true, s, kernel, err
}

// endInForce ends a job whose text is in force, in state s.
func (j *job) endInForce(s State, text string) { j.finish(s, text, text, nil) }

// endWith calls fail if there is an error, and endInForce otherwise.
func (j *job) endWith(err error, s State, text string) {
	if err != nil {
		j.fail(err)
		return
	}
	j.endInForce(s, text)
}

// finish ends a job and updates its row. verified is the text of the file. kernel is the text in
// force: for a list that the parent cgroup clips, the effective CPUs.
func (j *job) finish(s State, kernel, verified string, err error) {
	k, r := j.k, j.row
	k.mu.Lock()
	defer k.mu.Unlock()
	inForce := s == Applied || s == Unchanged || s == Clipped
	// The file has this text now, whichever process wrote it.
	r.verified = inForce
	if inForce {
		r.kernel = verified
	}
	if k.counts.end(j, s) && j.watched {
		k.watch.conflict(r)
	}
	if !j.aliveLocked() {
		return
	}
	if inForce {
		k.watch.set(r, true)
		if r.ceded != nil { // this conflict exceeded the limit
			s, err = Ceded, r.ceded
		}
	}
	j.end(s, kernel, err)
	r.state, r.err = s, err
	if j.watched && s == Applied {
		j.err = k.watch.contested(r)
	}
	// A job that the keeper itself added to a batch stays failed, since no caller gets its
	// outcome.
	if s == Refused && isTemporary(err) {
		k.table.failed[r] = true
	} else if !j.extra {
		delete(k.table.failed, r)
	}
	if inForce && verified != r.shownText && !r.handle.Same(verified, j.text) {
		r.shownText = verified
		k.Originals.note(r)
	}
	if j.releasing && (inForce || s == Pending && !r.waitsForCgroup) {
		k.dropLocked(r)
	}
}

// fail ends a job with an error. A missing cgroup leaves it pending.
func (j *job) fail(err error) {
	if cgroup.IsNotExist(err) && j.row.handle.Missing() {
		j.finish(Pending, "", "", nil)
		return
	}
	kernel, _ := j.row.handle.Read()
	j.finish(Refused, kernel, "", err)
}

// mismatchError returns the error for a write that the kernel accepted but whose text it did not keep.
func (j *job) mismatchError(kernel string) error {
	return j.row.handle.OpError("verify", j.text, fmt.Errorf("the kernel accepted the write but the file reads %q", kernel))
}

func outcomes(jobs []*job) []Outcome {
	out := make([]Outcome, len(jobs))
	for i, j := range jobs {
		out[i] = Outcome{Target: j.target, Value: j.value, State: j.state, Kernel: j.kernel, Err: j.err}
	}
	return out
}

// temporaryErrors lists temporary errors of a kernel file, which do not depend on the value: too few
// descriptors, too little memory, an interrupted call, a busy cgroup, a failed disk or bus.
var temporaryErrors = []error{
	syscall.EIO, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, ErrNotFreed,
}

func isTemporary(err error) bool {
	return slices.ContainsFunc(temporaryErrors, func(p error) bool { return errors.Is(err, p) })
}

// withFailed adds to a batch the lists that should have lost CPUs but still have them. The
// keeper gives these CPUs to no other cgroup.
func (k *Keeper) withFailed(jobs []*job) []*job {
	k.mu.Lock()
	defer k.mu.Unlock()
	failed := k.pick(maps.Keys(k.table.failed), func(r *row) bool {
		return r.isList() && r.ceded == nil && r.text != "" && !slices.ContainsFunc(jobs, func(j *job) bool { return j.row == r })
	})
	for _, j := range failed {
		j.extra = true
	}
	return append(slices.Clip(jobs), failed...)
}

// FailedOwners returns the owners of values that failed with a temporary error. Their cgroups may
// still have CPUs that they should lose.
func (k *Keeper) FailedOwners() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return owners(maps.Keys(k.table.failed), func(*row) bool { return true })
}

// RefusedOwners returns the owners of values that the kernel refused at the last write. The reason may
// have ended; the kernel sends no notice of that.
func (k *Keeper) RefusedOwners() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return owners(maps.Values(k.table.rows), func(r *row) bool { return r.state == Refused && r.ceded == nil })
}

// owners returns the owners of the rows that match, sorted.
func owners(rows iter.Seq[*row], match func(*row) bool) (all []string) {
	for r := range rows {
		if match(r) {
			all = append(all, r.target.Owner)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Tally counts the writes and repairs of a keeper since its start.
type Tally struct {
	// Results counts values that were written to the kernel, by result.
	Results map[State]uint64
	// Drift counts repaired values, by name of the setting.
	Drift map[string]uint64
}

// Tally returns the counts.
func (k *Keeper) Tally() Tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Tally{Results: maps.Clone(k.counts.Results), Drift: maps.Clone(k.counts.Drift)}
}

// end counts the end of a job, and reports whether it repaired a foreign change.
func (t *Tally) end(j *job, s State) bool {
	t.Results[s]++
	if !j.drifted || s != Applied && s != Clipped {
		return false
	}
	j.drifted = false
	if t.Drift == nil {
		t.Drift = map[string]uint64{}
	}
	t.Drift[j.setting()]++
	return true
}
