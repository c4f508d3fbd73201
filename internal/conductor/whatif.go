package conductor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/status"
)

// WhatIf tells what would become of pods if they came now, one after another, and of everybody else. Nothing is decided
// or written.
func (c *Conductor) WhatIf(wishes []engine.Wish) status.Outlook {
	then := c.copied()
	was := then.seats()
	var out status.Outlook
	for _, r := range then.state.WhatIf(wishes) {
		out.Rejected = append(out.Rejected, status.Rejected{Pod: r.Pod, Container: r.Container, Reason: r.Reason})
	}
	for _, w := range wishes {
		for _, id := range then.state.ContainersOf(w.Pod.ID) {
			out.Containers = append(out.Containers, then.container(then.state.Container(id)))
		}
	}
	out.Moves = moves(was, then.seats())
	out.CPUs = then.cpus()
	return out
}

// WhatIfConfigured tells which containers would get other CPUs with another policy.
func (c *Conductor) WhatIfConfigured(p engine.Policy) status.Outlook {
	then := c.copied()
	was := then.seats()
	then.state.Reconfigure(p)
	return status.Outlook{Moves: moves(was, then.seats()), CPUs: then.cpus()}
}

// copied tells of a copy of the state, which alone is made under the lock.
func (c *Conductor) copied() teller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return teller{state: c.state.Copy()}
}

// seats are the CPUs of all that runs, by container id.
func (t teller) seats() map[string]status.Move {
	all := map[string]status.Move{}
	for _, id := range t.state.Containers() {
		ctr := t.state.Container(id)
		if p := t.state.Pod(ctr.PodID); p != nil && ctr.Alive() {
			all[id] = status.Move{Pod: p.FullName(), Container: ctr.Name, Before: t.state.Machine.Format(t.state.CPUs(ctr))}
		}
	}
	return all
}

// moves are those whose CPUs differ.
func moves(before, after map[string]status.Move) []status.Move {
	var all []status.Move
	for id, b := range before {
		if a, still := after[id]; still && a.Before != b.Before {
			b.After = a.Before
			all = append(all, b)
		}
	}
	slices.SortFunc(all, status.Move.Compare)
	return all
}
