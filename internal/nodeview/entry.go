package nodeview

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// journalEntry returns the journal's entry for an event: the values decided for the event's pod or container, the
// changes of pools, and the problems.
func (v *View) journalEntry(ev *lifecycle.Event, p *engine.Plan, problems []lifecycle.Problem) api.Event {
	e := api.Event{Kind: ev.Kind.String(), Problems: problems}
	if ev.Pod != nil {
		e.Pod, e.PodUID = ev.Pod.Namespace+"/"+ev.Pod.Name, ev.Pod.UID
	}
	if ev.Container != nil {
		e.Container = ev.Container.Name
	}
	if p == nil {
		return e
	}
	if ctr := p.Container; ctr != nil && listsValues(ev.Kind) {
		e.Problems = append(e.Problems, ctr.DecisionProblems()...)
		if now := v.State.Container(ctr.ID); now != nil {
			if q, ok := v.State.DisplacedProblem(now); ok {
				e.Problems = append(e.Problems, q)
			}
			e.Values = v.values(now.ID, v.State.Values(now))
		}
	}
	if pod := p.Pod; pod != nil && slices.Contains(p.ChangedPods, pod.Pod.ID) {
		e.Problems = append(e.Problems, pod.Problems()...)
		if ev.Kind == lifecycle.RunPodSandbox {
			e.Values = v.values(pod.Pod.ID, pod.Values)
		}
	}
	for _, s := range p.GroupChanges {
		e.Changed = append(e.Changed, fmt.Sprintf("%s: %s -> %s (%d containers)", s.Group.Pool,
			v.State.Machine.Format(s.Before), v.State.Machine.Format(s.After), len(s.Members)))
	}
	if ev.Kind == lifecycle.Synchronize || ev.Kind == lifecycle.Configure {
		e.Problems = append(e.Problems, v.requestProblems(p)...)
		e.Changed = append(e.Changed, fmt.Sprintf("the agent decided again about %d pods and %d containers", len(p.ChangedPods), len(p.Changed)))
	}
	most := maxNodeProblems + 1
	if ev.Pod != nil {
		most = lifecycle.MaxProblems // the limit for one pod
	}
	e.Problems = lifecycle.LimitProblems(e.Problems, most)
	return e
}

// maxNodeProblems limits the problems in the journal entry of an event that is about all pods of the node. Users see the
// other problems with trimtab explain.
const maxNodeProblems = 50

// requestProblems returns the malformed or refused requests of all pods and containers that a plan decided again. Each
// reason begins with the name of its pod or container.
func (v *View) requestProblems(plan *engine.Plan) []lifecycle.Problem {
	var out []lifecycle.Problem
	add := func(requester string, problems []lifecycle.Problem) {
		for _, p := range problems {
			if !p.Warning {
				p.Reason = intent.Printable(requester) + ": " + p.Reason
				out = append(out, p)
			}
		}
	}
	for _, id := range plan.ChangedPods {
		if p := v.State.Pod(id); p != nil {
			add(p.FullName(), p.Problems())
		}
	}
	for _, id := range plan.Changed {
		if ctr := v.State.Container(id); ctr != nil {
			add(v.State.FullName(ctr), ctr.DecisionProblems())
		}
	}
	if more := len(out) - maxNodeProblems; more > 0 {
		out = append(out[:maxNodeProblems], lifecycle.Problem{Reason: fmt.Sprintf("and %d more problems; trimtab explain shows them", more), Warning: true})
	}
	return out
}

// listsValues reports whether the journal lists the values of this kind of event.
func listsValues(k lifecycle.Kind) bool {
	return k == lifecycle.CreateContainer || k == lifecycle.UpdateContainer || k == lifecycle.StartContainer
}
