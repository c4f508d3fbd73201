package nodeview

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
)

// PodState is a pod as it is reported to other programs.
type PodState struct {
	UID, Namespace, Name string
	Class                string               // system, dedicated, shared or reclaimed; "none" if the pod has no class
	Containers           []ContainerPlacement // those that are alive
	Problems             []lifecycle.Problem
	Missing              []MissingValue // the decided values that are not in force
}

// ContainerPlacement is where a container runs.
type ContainerPlacement struct {
	Name      string
	CPUs      string // as a kernel list
	Mems      string // memory nodes, as a kernel list; "" if none are set
	Exclusive bool   // the container owns the CPUs
}

// MissingValue is a decided value that is not in force.
type MissingValue struct {
	Container string // "" for a value of the pod
	Setting   string // the name of the field, with the key if there is one
	Reason    api.MissingReason
	Note      string // more about the reason, for users
}

// Sandboxes lists the sandboxes of pods that have not ended.
func Sandboxes(source Source) (out []string) {
	source.View(func(v *View) {
		for _, id := range v.State.Pods() {
			if !v.State.Pod(id).Stopped {
				out = append(out, id)
			}
		}
	})
	return out
}

// StateOf returns the state of the pod with this sandbox id; known is false if there is no such pod.
func StateOf(source Source, sandbox string) (s PodState, known bool) {
	source.View(func(v *View) {
		if p := v.State.Pod(sandbox); p != nil {
			s, known = v.podState(p), true
		}
	})
	return s, known
}

// podState does the work of StateOf for a pod that exists.
func (v *View) podState(p *engine.Pod) PodState {
	s := PodState{
		UID: p.Pod.UID, Namespace: p.Pod.Namespace, Name: p.Pod.Name,
		Class: p.Intent.Class.V.String(), Problems: p.Problems(),
	}
	s.Missing = v.missingValues(nil, "", p.Pod.ID, p.Values)
	for _, id := range v.State.ContainersOf(p.Pod.ID) {
		ctr := v.State.Container(id)
		s.Problems = append(s.Problems, v.State.Problems(ctr)...)
		if !ctr.Alive() {
			continue
		}
		values := v.State.Values(ctr)
		placed := ContainerPlacement{Name: ctr.Name, CPUs: v.State.Machine.Format(v.State.CPUs(ctr)), Exclusive: ctr.Assignment.Pool == placement.Exclusive && !ctr.Assignment.OwnsAndShares()}
		for i := range values {
			if values[i].Field == lifecycle.CPUSetMems {
				placed.Mems = values[i].String()
			}
		}
		s.Containers = append(s.Containers, placed)
		s.Missing = v.missingValues(s.Missing, ctr.Name, id, values)
	}
	s.Problems = lifecycle.LimitProblems(s.Problems, lifecycle.MaxProblems)
	return s
}

// missingValues appends the values that are not in force to out. It leaves out values that the agent has still to apply
// (api.NotYet), for example because the cgroup does not exist yet.
func (v *View) missingValues(out []MissingValue, container, owner string, values []lifecycle.Value) []MissingValue {
	for i := range values {
		b, why, _ := v.applyResult(owner, values[i])
		if why == "" || why == api.NotYet || len(out) >= lifecycle.MaxProblems {
			continue
		}
		out = append(out, MissingValue{Container: intent.Printable(container), Setting: values[i].Setting(), Reason: why, Note: b.fullNote()})
	}
	return out
}
