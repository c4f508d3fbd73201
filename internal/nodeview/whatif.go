package nodeview

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
)

// WhatIf returns what would be decided for pods if they were created now, one after another,
// and how all others would change. It decides and writes nothing.
func WhatIf(of StateCopier, wishes []engine.PlannedPod) api.Plan {
	then := View{State: of.CopyState()}
	was := then.assignments()
	var out api.Plan
	for _, r := range then.State.WhatIf(wishes) {
		out.Rejected = append(out.Rejected, api.Rejected{Pod: r.Pod, Container: r.Container, Reason: r.Reason})
	}
	for _, w := range wishes {
		for _, id := range then.State.ContainersOf(w.Pod.ID) {
			out.Containers = append(out.Containers, then.container(then.State.Container(id)))
		}
	}
	out.Moves = moves(was, then.assignments())
	out.CPUs = then.cpus()
	return out
}

// WhatIfConfigured returns which containers would get other CPUs with another policy.
func WhatIfConfigured(of StateCopier, p engine.Policy) api.Plan {
	then := View{State: of.CopyState()}
	was := then.assignments()
	then.State.Reconfigure(p)
	return api.Plan{Moves: moves(was, then.assignments()), CPUs: then.cpus()}
}

// StateCopier copies the state, outside of any event.
type StateCopier interface {
	CopyState() *engine.State
}

// assignments returns the CPUs of all containers, by container id.
func (v *View) assignments() map[string]api.Move {
	all := map[string]api.Move{}
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		if p := v.State.Pod(ctr.PodID); p != nil && ctr.Alive() {
			all[id] = api.Move{Pod: p.FullName(), Container: ctr.Name, Before: v.State.Machine.Format(v.State.CPUs(ctr))}
		}
	}
	return all
}

// moves returns the containers whose CPUs differ.
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
