package conductor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
)

// WhatIf tells what would become of pods if they came now, one after another, and of everybody else. Nothing is decided
// or written.
func (c *Conductor) WhatIf(wishes []engine.Wish) api.Outlook {
	then := c.copied()
	was := then.seats()
	var out api.Outlook
	for _, r := range then.state.WhatIf(wishes) {
		out.Rejected = append(out.Rejected, api.Rejected{Pod: r.Pod, Container: r.Container, Reason: r.Reason})
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
func (c *Conductor) WhatIfConfigured(p engine.Policy) api.Outlook {
	then := c.copied()
	was := then.seats()
	then.state.Reconfigure(p)
	return api.Outlook{Moves: moves(was, then.seats()), CPUs: then.cpus()}
}

// copied tells of a copy of the state, which alone is made under the lock.
func (c *Conductor) copied() teller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return teller{state: c.state.Copy()}
}

// seats are the CPUs of all that runs, by container id.
func (t teller) seats() map[string]api.Move {
	all := map[string]api.Move{}
	for _, id := range t.state.Containers() {
		ctr := t.state.Container(id)
		if p := t.state.Pod(ctr.PodID); p != nil && ctr.Alive() {
			all[id] = api.Move{Pod: p.FullName(), Container: ctr.Name, Before: t.state.Machine.Format(t.state.CPUs(ctr))}
		}
	}
	return all
}

// moves are those whose CPUs differ.
func moves(before, after map[string]api.Move) []api.Move {
	var all []api.Move
	for id, b := range before {
		if a, still := after[id]; still && a.Before != b.Before {
			b.After = a.Before
			all = append(all, b)
		}
	}
	slices.SortFunc(all, api.Move.Compare)
	return all
}
