package keeper

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

const (
	idleKey  = "cpu.idle"
	burstKey = "cpu.max.burst"
)

// errIdle is why a weight is desired and not in the kernel.
var errIdle = errors.New("kept aside while cpu.idle is 1")

// unit is what is written at once: one job, or those of quota and period.
type unit struct {
	jobs  []*job
	cur   []string // the text found, by job
	grows bool
	// hidden: what was read is not what was written, as the cgroup is idle.
	hidden bool
}

// runScalars writes the jobs that are no lists: all that shrink, deepest first,
// then all that grow, from the top.
func (k *Keeper) runScalars(jobs []*job) {
	var shrink, grow []*unit
	for _, u := range group(jobs) {
		switch {
		case !k.look(u):
		case u.grows:
			grow = append(grow, u)
		default:
			shrink = append(shrink, u)
		}
	}
	slices.SortStableFunc(shrink, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.depth(), a.depth()))
	})
	slices.SortStableFunc(grow, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.depth(), b.depth()))
	})
	for _, u := range append(shrink, grow...) {
		k.write(u)
	}
}

func group(jobs []*job) []*unit {
	var units []*unit
	bandwidth := map[string]*unit{}
	for _, j := range jobs {
		if j.done || isList(j.place.field) || isPartition(j.place) {
			continue
		}
		u := &unit{jobs: []*job{j}}
		if isBandwidth(j.place.field) {
			if other := bandwidth[j.place.dir]; other != nil {
				other.jobs = append(other.jobs, j)
				continue
			}
			bandwidth[j.place.dir] = u
		}
		units = append(units, u)
	}
	return units
}

func isBandwidth(f lifecycle.Field) bool { return f == lifecycle.CPUQuota || f == lifecycle.CPUPeriod }

func (u *unit) depth() int { return u.jobs[0].place.depth() }

// rank orders files of one cgroup that depend on each other: a burst stays
// within the quota, and a weight cannot be written while the cgroup is idle.
func (u *unit) rank() int {
	switch key := u.jobs[0].place.key; {
	case key == idleKey && u.grows:
		return 3
	case key == idleKey:
		return 0
	case (key == burstKey) == u.grows:
		return 2
	}
	return 1
}

// look finds out what the kernel has and in which direction a unit goes. It
// reports whether something is to be written. The answer "the same" is given
// under the row's lock: outside of it an older write could still be under way.
func (k *Keeper) look(u *unit) bool {
	u.jobs[0].row.writing.Lock()
	defer u.jobs[0].row.writing.Unlock()
	if !k.keepAlive(u) {
		return false
	}
	for _, j := range u.jobs {
		if j.place.field == lifecycle.CPUShares && k.desiredIdle(j.place.dir) {
			k.finish(j, Pending, "", "", errIdle)
			return false
		}
	}
	if err := k.readUnit(u, false); err != nil {
		k.failUnit(u, err)
		return false
	}
	u.hidden = k.hiddenByUs(u.jobs[0].place)
	same := true
	for i, j := range u.jobs {
		k.seen(j, u.cur[i])
		same = same && k.holds(j, u.cur[i])
	}
	if same {
		for i, j := range u.jobs {
			if !u.hidden {
				k.keepFound(j, u.cur[i])
			}
			k.finish(j, Same, u.cur[i], u.cur[i], nil)
		}
		return false
	}
	u.grows = u.direction() || k.tree.Version == cgroup.V1 && u.bounds()
	return true
}

// bounds reports whether a unit gives a bandwidth to a cgroup that has none of its
// own. In version 1 such a one has its parent's for a limit, and a child's may not
// be above that: it goes with those that grow, after the parent.
func (u *unit) bounds() bool {
	for i, j := range u.jobs {
		if j.place.field == lifecycle.CPUQuota {
			n, err := strconv.ParseInt(u.cur[i], 10, 64)
			return err != nil || n <= 0
		}
	}
	return false
}

// keepAlive drops the jobs that are not wanted any more, and reports whether one
// is left.
func (k *Keeper) keepAlive(u *unit) bool {
	kept := u.jobs[:0:0]
	var cur []string
	for i, j := range u.jobs {
		if k.alive(j) {
			kept = append(kept, j)
			if u.cur != nil {
				cur = append(cur, u.cur[i])
			}
		}
	}
	if len(kept) > 0 {
		u.jobs, u.cur = kept, cur
	}
	return len(kept) > 0
}

// readUnit reads the texts of a unit, quota and period at once.
func (k *Keeper) readUnit(u *unit, fresh bool) error {
	u.cur = make([]string, len(u.jobs))
	if len(u.jobs) == 2 && (fresh || !u.jobs[0].hasKnown || !u.jobs[1].hasKnown) {
		quota, period, err := k.tree.ReadBandwidth(u.jobs[0].place.dir)
		for i, j := range u.jobs {
			u.cur[i] = quota
			if j.place.field == lifecycle.CPUPeriod {
				u.cur[i] = period
			}
		}
		return err
	}
	for i, j := range u.jobs {
		var err error
		if fresh {
			u.cur[i], err = k.tree.Read(j.place.dir, j.place.field, j.place.key)
		} else {
			u.cur[i], err = k.read(j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// direction reports whether a unit gives more than there is. Bandwidth is a
// ratio: a longer period gives less.
func (u *unit) direction() bool {
	if !isBandwidth(u.jobs[0].place.field) {
		j := u.jobs[0]
		return cgroup.Compare(j.place.field, j.place.key, j.want, u.cur[0]) >= 0
	}
	oldRatio, newRatio := 1.0, 1.0
	for i, j := range u.jobs {
		was, now := number(u.cur[i]), number(j.want)
		if j.place.field == lifecycle.CPUPeriod {
			oldRatio, newRatio = oldRatio/was, newRatio/now
		} else {
			oldRatio, newRatio = oldRatio*was, newRatio*now
		}
	}
	return newRatio >= oldRatio
}

// number reads a quota or period, no limit as more than any.
func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		return 1e18
	}
	return n
}

// write sets a unit, reads it back and ends its jobs.
func (k *Keeper) write(u *unit) {
	u.jobs[0].row.writing.Lock()
	defer u.jobs[0].row.writing.Unlock()
	if !k.keepAlive(u) {
		return
	}
	for i, j := range u.jobs {
		if !u.hidden { // or writeIdle told what was there, if anybody knows
			k.keepOriginal(j, u.cur[i])
		}
	}
	if err := k.writeUnit(u); err != nil {
		k.failUnit(u, err)
		return
	}
	if err := k.readUnit(u, true); err != nil {
		k.failUnit(u, err)
		return
	}
	for i, j := range u.jobs {
		s, _ := cgroup.Find(j.place.field, j.place.key)
		if s.Kind != cgroup.Text && !k.holds(j, u.cur[i]) {
			k.fail(j, k.differs(j, u.cur[i]))
			continue
		}
		// Plain text may be shown in another form than it was written in.
		k.finish(j, Applied, u.cur[i], u.cur[i], nil)
	}
}

func (k *Keeper) writeUnit(u *unit) error {
	j := u.jobs[0]
	switch {
	case isBandwidth(j.place.field):
		var quota, period string
		for i, j := range u.jobs {
			switch {
			case k.tree.Version == cgroup.V1 && k.holds(j, u.cur[i]):
				// Two files: the one that is right is not written.
			case j.place.field == lifecycle.CPUPeriod:
				period = j.want
			default:
				quota = j.want
			}
		}
		return k.tree.WriteBandwidth(j.place.dir, quota, period)
	case j.place.key == idleKey:
		return k.writeIdle(j, u.cur[0])
	}
	return k.tree.WriteText(j.place.dir, j.place.field, j.place.key, j.want)
}

// writeIdle makes a cgroup idle or not. The kernel forgets its weight meanwhile
// and then gives it the default one, so the weight is put aside and given back.
func (k *Keeper) writeIdle(j *job, current string) error {
	dir := j.place.dir
	if j.want == "1" && current == "0" {
		weight, err := k.tree.Read(dir, lifecycle.CPUShares, "")
		if err != nil {
			return err
		}
		k.mu.Lock()
		j.row.weight = weight
		k.noteLocked(j.row)
		k.mu.Unlock()
		k.flush()
	}
	if err := k.tree.WriteText(dir, j.place.field, j.place.key, j.want); err != nil {
		return err
	}
	if j.want == "1" {
		return nil
	}
	k.mu.Lock()
	weight := j.row.weight
	if r := k.rows[place{dir, lifecycle.CPUShares, ""}]; r != nil && r.want != "" {
		k.originalLocked(r, weight)
		weight = r.want
	}
	j.row.weight = ""
	k.mu.Unlock()
	if weight == "" {
		return nil
	}
	return k.tree.WriteText(dir, lifecycle.CPUShares, "", weight)
}

func (k *Keeper) failUnit(u *unit, err error) {
	for _, j := range u.jobs {
		k.fail(j, err)
	}
}
