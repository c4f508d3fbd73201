package keeper

import (
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Rest is what ApplyUrgent left for later. A nil one has nothing.
type Rest struct {
	k    *Keeper
	jobs []*job
}

// Apply writes what was left, and returns one outcome for each row of it.
func (r *Rest) Apply() []Outcome {
	if r == nil {
		return nil
	}
	r.k.lists.Lock()
	r.k.runLists(r.jobs)
	r.k.lists.Unlock()
	r.k.flush()
	return outcomes(r.jobs)
}

// ApplyUrgent is Apply for a caller that needs no more than that what is taken from cgroups is out of their reach when it
// returns. Where the kernel sees to that by partitions of the same batch, however many have to lose the same
// CPUs, the lists of those that lose nothing else are left for later. They are to be written before anything else is
// decided. Outcomes are of what was done.
func (k *Keeper) ApplyUrgent(batch []Item) ([]Outcome, *Rest) {
	out, later := k.apply(batch, true)
	if len(later) == 0 {
		return out, nil
	}
	left := map[int]bool{}
	for _, j := range later {
		for _, i := range j.items {
			left[i] = true
		}
	}
	done := make([]Outcome, 0, len(out)-len(left))
	for i, o := range out {
		if !left[i] {
			done = append(done, o)
		}
	}
	return done, &Rest{k: k, jobs: later}
}

// postpone parts the jobs whose lists a partition of the batch narrows for them from the others: they only lose CPUs, all
// of these are the partitions', and something is left to them, so that the kernel gives them nobody else's instead. What
// was never read and verified is not among them. Nothing is postponed where a list of the batch gets such CPUs: that is
// written before there is a partition.
func (p *partitionPass) postpone(jobs []*job) (now, later []*job) {
	var parted cgroup.IDs
	for _, s := range p.all {
		if s.wanted {
			parted = parted.Union(s.want)
		}
	}
	if parted.Empty() {
		return jobs, nil
	}
	lists := &listPass{k: p.k, parsed: map[string]*cgroup.IDs{}}
	parse := func(text string) cgroup.IDs {
		set, _ := lists.parse(text) // of what the kernel said, or is to be told
		return *set
	}
	for _, j := range jobs {
		if j.place.field != lifecycle.CPUSetCPUs || j.done {
			now = append(now, j)
			continue
		}
		var has cgroup.IDs
		if j.hasKnown {
			has = parse(j.known)
		}
		want := parse(j.want)
		if !want.Minus(has).And(parted).Empty() {
			return jobs, nil
		}
		lost := has.Minus(want)
		if !j.target.Parent && !j.releasing && !want.Empty() && !lost.Empty() && has.Contains(want) && parted.Contains(lost) {
			later = append(later, j)
			continue
		}
		now = append(now, j)
	}
	return now, later
}

// inForce reports whether all that were to be partitions are.
func inForce(wanted []*partition) bool {
	for _, s := range wanted {
		if !s.wanted || s.is != "root" || s.had != s.want {
			return false
		}
	}
	return true
}
