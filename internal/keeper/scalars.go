package keeper

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The names of cgroup files, which are keys of values of the field Unified.
const (
	idleKey  = "cpu.idle"
	burstKey = "cpu.max.burst"
)

// errIdle is the reason why the keeper does not write a desired weight yet.
var errIdle = errors.New("cpu.idle is 1, which gives the cgroup less CPU time than any weight; the agent writes the weight when cpu.idle is 0")

// writeUnit has jobs whose values are written together: a single job, or the jobs of quota and period.
type writeUnit struct {
	jobs []*job
	// raises means that the cgroup gets more than before, as with a higher limit. Such units are written last, and
	// the units of parent cgroups before those of their children.
	raises bool
	// hidden means that the file does not show the written weight, since cpu.idle is 1.
	hidden bool
}

// runScalars runs the jobs that are not for cpuset files. It first writes all values that shrink, deepest cgroup first.
// Then it writes all values that grow, from the top.
func runScalars(jobs []*job) {
	units := slices.DeleteFunc(makeUnits(jobs), func(u *writeUnit) bool { return !u.plan() })
	slices.SortStableFunc(units, func(a, b *writeUnit) int {
		deeper := cmp.Compare(b.jobs[0].depth(), a.jobs[0].depth())
		if a.raises {
			deeper = -deeper
		}
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), deeper)
	})
	for _, u := range units {
		u.write()
	}
}

// makeUnits puts jobs into units. It leaves out jobs that have ended and jobs for cpuset files.
func makeUnits(jobs []*job) []*writeUnit {
	var units []*writeUnit
	bandwidth := map[string]*writeUnit{}
	for _, j := range jobs {
		if j.done || j.isCpusetFile() {
			continue
		}
		u := &writeUnit{jobs: []*job{j}}
		if j.isBandwidth() {
			if other := bandwidth[j.dir]; other != nil {
				other.jobs = append(other.jobs, j)
				continue
			}
			bandwidth[j.dir] = u
		}
		units = append(units, u)
	}
	return units
}

// rank orders units: units that shrink come before units that grow. It also orders files of one cgroup that depend on
// each other: the burst must not exceed the quota, and the kernel refuses a weight while cpu.idle is 1.
func (u *writeUnit) rank() int {
	kind := 0 // a unit with a higher kind is written earlier if it shrinks, and later if it grows
	switch u.jobs[0].key {
	case idleKey:
		kind = 2
	case burstKey:
		kind = 1
	}
	if u.raises {
		return kind
	}
	return -1 - kind
}

// plan reads the kernel's values, and finds out whether the unit grows or shrinks. It returns true
// if the unit must be written, and otherwise ends the unit's jobs. It holds the row's lock, since
// another goroutine may still write an older value of the row.
func (u *writeUnit) plan() bool {
	j := u.jobs[0]
	j.row.writing.Lock()
	defer j.row.writing.Unlock()
	if !u.dropOutdated() {
		return false
	}
	j = u.jobs[0]
	byUs, idle := j.cpuIdle()
	if idle {
		j.finish(Pending, "", "", errIdle)
		return false
	}
	if err := u.read(); err != nil {
		u.fail(err)
		return false
	}
	u.hidden = byUs && j.isHidden(j.k.tree)
	same := true
	for _, j := range u.jobs {
		j.detectDrift(j.foundText)
		same = same && j.matchesDesired(j.foundText)
	}
	if !same {
		u.raises = u.allowsMore() || j.k.tree.Version == cgroup.V1 && u.addsQuota()
		return true
	}
	for _, j := range u.jobs {
		if !u.hidden {
			j.storeFoundAsOriginal(j.foundText)
		}
		j.endInForce(Unchanged, j.foundText)
	}
	return false
}

// cpuIdle reports whether the job is for the weight of a cgroup whose cpu.idle the agent manages (byUs), and whether the
// agent has set cpu.idle of that cgroup to 1 (idle).
func (j *job) cpuIdle() (byUs, idle bool) {
	j.k.mu.Lock()
	defer j.k.mu.Unlock()
	r := j.k.table.idleRow(j.dir)
	byUs = j.field == lifecycle.CPUShares && r != nil
	return byUs, byUs && r.text == "1" && r.verified
}

// addsQuota reports whether a unit gives a quota to a cgroup that has none. In cgroup version 1, the kernel refuses a
// quota that exceeds the quota of the parent. So the keeper writes such a quota with the values that grow, after the
// quota of the parent.
func (u *writeUnit) addsQuota() bool {
	i := slices.IndexFunc(u.jobs, func(j *job) bool { return j.field == lifecycle.CPUQuota })
	return i >= 0 && parseLimit(u.jobs[i].foundText) == unlimited
}

// dropOutdated drops the jobs whose values are no longer desired, and reports whether any job is left.
func (u *writeUnit) dropOutdated() bool {
	kept := slices.DeleteFunc(slices.Clone(u.jobs), func(j *job) bool { return !j.isCurrent() })
	if len(kept) > 0 {
		u.jobs = kept
	}
	return len(kept) > 0
}

// read reads the texts of a unit into the jobs' foundText. It reads quota and period together.
func (u *writeUnit) read() error {
	j := u.jobs[0]
	if len(u.jobs) == 2 && (!j.kernelTextKnown || !u.jobs[1].kernelTextKnown) {
		quota, period, err := j.k.tree.ReadBandwidth(j.dir)
		for _, j := range u.jobs {
			j.foundText = quota
			if j.field == lifecycle.CPUPeriod {
				j.foundText = period
			}
		}
		return err
	}
	for _, j := range u.jobs {
		var err error
		if j.foundText, err = j.read(); err != nil {
			return err
		}
	}
	return nil
}

// allowsMore reports whether the desired values of a unit allow at least as much as the present values.
// For quota and period, it compares quota divided by period.
func (u *writeUnit) allowsMore() bool {
	if j := u.jobs[0]; !j.isBandwidth() {
		return j.row.handle.Compare(j.text, j.foundText) >= 0
	}
	before, after := 1.0, 1.0
	for _, j := range u.jobs {
		was, now := parseLimit(j.foundText), parseLimit(j.text)
		if j.field == lifecycle.CPUPeriod {
			before, after = before/was, after/now
		} else {
			before, after = before*was, after*now
		}
	}
	return after >= before
}

// unlimited stands for no limit. It is more than any quota.
const unlimited = 1e18

// parseLimit parses a quota or period. A text without a positive number, such as "max" or "-1", means no limit.
func parseLimit(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		return unlimited
	}
	return n
}

// write writes a unit, reads it back and ends its jobs.
func (u *writeUnit) write() {
	u.jobs[0].row.writing.Lock()
	defer u.jobs[0].row.writing.Unlock()
	if !u.dropOutdated() {
		return
	}
	for _, j := range u.jobs {
		if !u.hidden { // a hidden file does not show the original either
			j.storeOriginal(j.foundText)
		}
	}
	err := u.set()
	for _, j := range u.jobs {
		j.kernelTextKnown = false // the read below then reads the file again
	}
	if err == nil {
		err = u.read()
	}
	if err != nil {
		u.fail(err)
		return
	}
	for _, j := range u.jobs {
		if !j.row.handle.IsFreeText() && !j.matchesDesired(j.foundText) {
			j.fail(j.mismatchError(j.foundText))
			continue
		}
		// For free text there is no comparison, because the kernel may show the text in another form.
		j.endInForce(Applied, j.foundText)
	}
}

// set writes the desired texts of a unit.
func (u *writeUnit) set() error {
	j := u.jobs[0]
	switch {
	case j.isBandwidth():
		var quota, period string
		for _, j := range u.jobs {
			switch {
			case j.k.tree.Version == cgroup.V1 && j.matchesDesired(j.foundText):
				// In cgroup version 1, quota and period are two files. The keeper does not write a file
				// that already has the desired text.
			case j.field == lifecycle.CPUPeriod:
				period = j.text
			default:
				quota = j.text
			}
		}
		return j.k.tree.WriteBandwidth(j.dir, quota, period)
	case j.key == idleKey:
		return j.setIdle()
	}
	return j.row.handle.Write(j.text)
}

// setIdle writes cpu.idle. When cpu.idle becomes 1, the kernel drops the cgroup's weight, and when cpu.idle becomes 0,
// it sets the default weight. So setIdle saves the weight before it writes 1, and restores the weight after it wrote 0.
func (j *job) setIdle() error {
	k := j.k
	if j.text == "1" && j.foundText == "0" {
		weight, err := k.tree.Read(j.dir, lifecycle.CPUShares, "")
		if err != nil {
			return err
		}
		k.mu.Lock()
		j.row.history.Weight = weight
		k.Originals.addLine(j.row)
		k.mu.Unlock()
		k.Originals.flush()
	}
	if err := j.row.handle.Write(j.text); err != nil || j.text == "1" {
		return err
	}
	k.mu.Lock()
	weight := j.row.history.Weight
	if r := k.table.rows[fileKey{j.dir, lifecycle.CPUShares, ""}]; r != nil && r.text != "" {
		k.Originals.storeOriginalIfMissing(r, weight)
		weight = r.text
	}
	j.row.history.Weight = ""
	k.mu.Unlock()
	if weight == "" {
		return nil
	}
	return k.tree.WriteText(j.dir, lifecycle.CPUShares, "", weight)
}

// fail ends all jobs of a unit with an error.
func (u *writeUnit) fail(err error) {
	for _, j := range u.jobs {
		j.fail(err)
	}
}
