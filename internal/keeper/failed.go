package keeper

import (
	"errors"
	"slices"
	"syscall"
)

// passing are what a kernel file answers for reasons that pass, whatever the
// value: no descriptors or memory are left, a call was interrupted, a cgroup is
// busy, a disk or bus failed.
var passing = []error{
	syscall.EIO, syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, ErrHeld,
}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// noteFailedLocked notes whether a row is to be written again, though nobody asks
// for anything new. One that a batch took along stays noted: its outcome is nobody's
// yet.
func (k *Keeper) noteFailedLocked(j *job, s State, err error) {
	if s == Refused && passes(err) {
		k.failed[j.row] = true
	} else if !j.extra {
		delete(k.failed, j.row)
	}
}

// withFailed adds to the lists of a batch those that others were to give up and did
// not: what they still have is not given to anybody.
func (k *Keeper) withFailed(jobs []*job) []*job {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.failed) == 0 {
		return jobs
	}
	have := map[*row]bool{}
	for _, j := range jobs {
		have[j.row] = true
	}
	all := slices.Clone(jobs)
	for r := range k.failed {
		if k.rows[r.place] == r && isList(r.field) && !have[r] && r.left == nil && r.want != "" {
			j := newJob(r)
			j.extra = true
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all[len(jobs):], func(a, b *job) int { return a.place.compare(b.place) })
	return all
}

// Failed returns the owners of values that were refused for a reason that may
// have passed: others may still have what is to be taken from them.
func (k *Keeper) Failed() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var owners []string
	for r := range k.failed {
		if k.rows[r.place] != r {
			delete(k.failed, r) // its owner is gone
			continue
		}
		owners = append(owners, r.target.Owner)
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// SettleFailed writes again what Failed tells of, all in one order the kernel
// accepts.
func (k *Keeper) SettleFailed() []Outcome {
	owners := k.Failed()
	if len(owners) == 0 {
		return nil
	}
	return k.settle(false, owners...)
}
