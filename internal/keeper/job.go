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

// job writes the desired value of one row of the keeper's table to the kernel. It has a copy of the value that the row
// had when the job was made.
type job struct {
	fileKey
	desiredValue
	k   *Keeper
	row *row

	// verifiedText is the last verified text of the file. kernelTextKnown means that the file still has this text,
	// as far as the keeper knows. The keeper then needs no read. For a new row, kernelTextKnown is false.
	verifiedText    string
	kernelTextKnown bool
	foundText       string // the text that the job last read from the file
	// drifted means that another program has changed the text that the keeper last verified. isRepair means that the
	// job is part of a repair (see Keeper.Repair). A write of such a job counts as a write conflict with another
	// program.
	drifted, isRepair bool
	// addedByKeeper means that the keeper itself added the job to the caller's batch. The job's cgroup may still
	// have CPUs that the batch gives to other cgroups.
	addedByKeeper bool

	done   bool // the job has ended, with the result in the fields below
	state  State
	kernel string // the text in the kernel when the job ended
	err    error  // the reason for the state; nil if there is none
}

// newJob makes a job for a row. If the row is ceded, that is, the keeper leaves its file to another program, the job
// has ended already and writes nothing.
func (k *Keeper) newJob(r *row) *job {
	j := &job{fileKey: r.fileKey, desiredValue: r.desiredValue, k: k, row: r}
	if r.cededReason != nil {
		r.state, r.err = Ceded, r.cededReason
		j.end(Ceded, "", r.cededReason)
	}
	return j
}

// isCurrent reports whether the job's value is still the desired value of the row. If it is not, isCurrent ends the job
// without a write: either the row was removed, or a newer batch has recorded another value and writes that value.
func (j *job) isCurrent() bool {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	return j.isCurrentLocked()
}

// isCurrentLocked is isCurrent for a caller that holds Keeper.mu.
func (j *job) isCurrentLocked() bool {
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

// read returns the text in the file. If the keeper knows the text, and the text is not the desired one, read does not
// read the file, since the keeper overwrites the file anyway.
func (j *job) read() (string, error) {
	if j.kernelTextKnown && !j.matchesDesired(j.verifiedText) {
		return j.verifiedText, nil
	}
	return j.row.handle.Read()
}

// matchesDesired reports whether the kernel's text means the desired value.
//
// In cgroup v2, two formulas convert a container's shares to a weight: the linear formula of the
// kubelet, and the curve of newer OCI runtimes. The keeper must use the formula of this node's
// runtime. Otherwise the keeper and the runtime overwrite each other's weights, and the weights of
// a pod's containers cannot be compared. So the keeper learns the formula from the weights that it
// reads. The kubelet writes the weights of pods. For pods, only the linear formula is correct.
func (j *job) matchesDesired(kernel string) bool {
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
		// The text may be the default weight of a cgroup that no program has written, so the keeper
		// learns no formula from it.
		return k.newerWeightCurve.Load()
	case kernel == curve:
		k.newerWeightCurve.Store(true)
		return true
	}
	return same
}

// defaultShares are the kernel's default for cpu.shares.
const defaultShares = 1024

// weightText returns a weight as the text for the kernel.
func weightText(w int64) string { return strconv.FormatInt(w, 10) }

// detectDrift compares the text that the file had before the job's write with the last verified text. If the two
// differ, another program wrote the file, and detectDrift sets j.drifted.
func (j *job) detectDrift(text string) {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	j.drifted = j.row.drifted(text)
}

// storeOriginal stores the present text of the file as the original, if this is the first write of the row.
func (j *job) storeOriginal(current string) {
	o := j.k.Originals
	j.k.mu.Lock()
	first := j.row.history.Original == nil && !j.row.history.RuntimeMayHaveWritten && !o.mayHaveUnjournaledWrite(j.row)
	if first {
		o.storeOriginal(j.row, current)
	}
	j.k.mu.Unlock()
	if first {
		o.flush()
	}
}

// storeFoundAsOriginal stores the present text of the file as the original, when the file already has the desired text.
// It does not do so if the runtime reported a requested value, since an earlier agent may have written the
// text. The requested value is then the original.
func (j *job) storeFoundAsOriginal(current string) {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	if r, o := j.row, j.k.Originals; r.history.Requested == nil && !r.releasing && !o.mayHaveUnjournaledWrite(r) {
		o.storeOriginalIfMissing(r, current)
	}
}

// end stores the result of the job. It does not change the row.
func (j *job) end(s State, kernel string, err error) {
	j.done, j.state, j.kernel, j.err = true, s, kernel, err
}

// endInForce ends a job in state s. The caller has found that the file has the text and that the kernel uses it.
func (j *job) endInForce(s State, text string) { j.finish(s, text, text, nil) }

// endWith calls fail if there is an error, and endInForce otherwise.
func (j *job) endWith(err error, s State, text string) {
	if err != nil {
		j.fail(err)
		return
	}
	j.endInForce(s, text)
}

// finish ends a job and updates the job's row. The parameter verified is the text in the file, and kernel is the text
// in force. The two differ only for a list of CPUs or memory nodes of which the parent cgroup allows only a part. In
// this case, kernel has the effective list.
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
	if k.counts.countJob(j, s) && j.isRepair {
		k.watched.countRepair(r)
	}
	if !j.isCurrentLocked() {
		return
	}
	if inForce {
		k.watched.setWatched(r, true)
		if r.cededReason != nil { // this repair exceeded the limit for write conflicts
			s, err = Ceded, r.cededReason
		}
	}
	j.end(s, kernel, err)
	r.state, r.err = s, err
	if j.isRepair && s == Applied {
		j.err = k.watched.throttledReason(r)
	}
	// No caller gets the outcome of a job that the keeper itself added to a batch. Even if such a job succeeds, its row
	// stays in table.failed, so that a later repair reports the outcome.
	if s == Refused && isTemporary(err) {
		k.table.failed[r] = true
	} else if !j.addedByKeeper {
		delete(k.table.failed, r)
	}
	if inForce && verified != r.shownText && !r.handle.Same(verified, j.text) {
		r.shownText = verified
		k.Originals.addLine(r)
	}
	if j.releasing && (inForce || s == Pending && !r.waitsForCgroup) {
		k.dropLocked(r)
	}
}

// fail ends a job with an error. If the cgroup does not exist, the job ends as pending.
func (j *job) fail(err error) {
	if cgroup.IsNotExist(err) && j.row.handle.Missing() {
		j.finish(Pending, "", "", nil)
		return
	}
	kernel, _ := j.row.handle.Read()
	j.finish(Refused, kernel, "", err)
}

// mismatchError returns the error for a write that the kernel accepted, if the file has another text afterwards.
func (j *job) mismatchError(kernel string) error {
	return j.row.handle.OpError("verify", j.text, fmt.Errorf("the kernel accepted the write, but the file has %q afterwards", kernel))
}

// outcomes returns the outcomes of ended jobs, in their order.
func outcomes(jobs []*job) []Outcome {
	out := make([]Outcome, len(jobs))
	for i, j := range jobs {
		out[i] = Outcome{Target: j.target, Value: j.value, State: j.state, Kernel: j.kernel, Err: j.err}
	}
	return out
}

// temporaryErrors lists errors that do not depend on the value: too few descriptors, too little memory, an interrupted
// call, a busy cgroup, a failed disk or bus, CPUs that another cgroup still has. A later write may succeed.
var temporaryErrors = []error{
	syscall.EIO, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, ErrNotFreed,
}

// isTemporary reports whether an error is one of temporaryErrors.
func isTemporary(err error) bool {
	return slices.ContainsFunc(temporaryErrors, func(p error) bool { return errors.Is(err, p) })
}

// addFailedLists adds jobs to a batch, for the CPU and memory node lists whose last write failed with a temporary
// error. The cgroups with these lists possibly still have CPUs that they should have lost. If a list fails again, no
// other cgroup gets these CPUs.
func (k *Keeper) addFailedLists(jobs []*job) []*job {
	k.mu.Lock()
	defer k.mu.Unlock()
	failed := k.makeJobs(maps.Keys(k.table.failed), func(r *row) bool {
		return r.isList() && r.cededReason == nil && r.text != "" && !slices.ContainsFunc(jobs, func(j *job) bool { return j.row == r })
	})
	for _, j := range failed {
		j.addedByKeeper = true
	}
	return append(slices.Clip(jobs), failed...)
}

// FailedOwners returns the owners of values whose last write failed with a temporary error. The cgroups of these owners
// possibly still have CPUs that they should have lost.
func (k *Keeper) FailedOwners() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return owners(maps.Keys(k.table.failed), func(*row) bool { return true })
}

// RefusedOwners returns the owners of values that the kernel refused at the last write. The kernel does not report when
// it can accept such a value, so the caller must try again.
func (k *Keeper) RefusedOwners() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return owners(maps.Values(k.table.rows), func(r *row) bool { return r.state == Refused && r.cededReason == nil })
}

// owners returns the owners of the rows that match, sorted and without duplicates.
func owners(rows iter.Seq[*row], match func(*row) bool) (all []string) {
	for r := range rows {
		if match(r) {
			all = append(all, r.target.Owner)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Tally has the numbers of writes and repairs since the start of the keeper.
type Tally struct {
	// Results counts the values that the keeper handled, by result.
	Results map[State]uint64
	// Drift counts the repairs of values that other programs changed, by name of the setting.
	Drift map[string]uint64
}

// Tally returns the counts.
func (k *Keeper) Tally() Tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Tally{Results: maps.Clone(k.counts.Results), Drift: maps.Clone(k.counts.Drift)}
}

// countJob counts the result of a job, and reports whether the job repaired a change by another program.
func (t *Tally) countJob(j *job, s State) bool {
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
