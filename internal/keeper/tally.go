package keeper

import (
	"maps"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Tally counts what a keeper has done since it was made.
type Tally struct {
	// Results counts values handed to the kernel, by what became of them.
	Results map[State]uint64
	// Drift counts values that somebody else had changed and that were put
	// right, by the name of the setting.
	Drift map[string]uint64
}

// Tally returns the counts so far.
func (k *Keeper) Tally() Tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := Tally{Results: map[State]uint64{}, Drift: maps.Clone(k.drift)}
	for s, n := range k.results {
		if n > 0 {
			t.Results[State(s)] = n
		}
	}
	return t
}

// seen notes what the kernel said before a job writes. A text other than the
// one last verified is somebody else's.
func (k *Keeper) seen(j *job, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := j.row
	j.drifted = r.verified && !cgroup.Same(j.place.field, j.place.key, text, r.kernel)
}

// countLocked counts the end of a job.
func (k *Keeper) countLocked(j *job, s State) {
	k.results[s]++
	if !j.drifted || (s != Applied && s != Clipped) {
		return
	}
	j.drifted = false
	if k.drift == nil {
		k.drift = map[string]uint64{}
	}
	k.drift[j.place.setting()]++
	if j.watched {
		k.foughtLocked(j.row)
	}
}

// setting names what a place holds, out of a bounded set: the field, the file
// where the table of settings has it, or "other".
func (p place) setting() string {
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
