package nodeview

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// WhatIf returns what would be decided for pods if they were created now, one after another, and how the decisions
// about all other pods would change. It decides and writes nothing.
func WhatIf(copier StateCopier, planned []engine.PlannedPod) api.Plan {
	then := View{State: copier.CopyState()}
	was, decided := then.assignments(), then.decisions()
	var out api.Plan
	for _, r := range then.State.WhatIf(planned) {
		out.Rejected = append(out.Rejected, api.Rejected{Pod: r.Pod, Container: r.Container, Reason: r.Reason})
	}
	for _, w := range planned {
		for _, id := range then.State.ContainersOf(w.Pod.ID) {
			out.Containers = append(out.Containers, then.container(then.State.Container(id)))
		}
	}
	out.Moves, out.Changes = moves(was, then.assignments()), changes(decided, then.decisions())
	out.CPUs = then.cpus()
	return out
}

// WhatIfConfigured returns which containers would get other CPUs, classes and values with another policy.
func WhatIfConfigured(copier StateCopier, p engine.Policy) api.Plan {
	then := View{State: copier.CopyState()}
	was, decided := then.assignments(), then.decisions()
	then.State.Reconfigure(p)
	return api.Plan{
		Moves: moves(was, then.assignments()), Changes: changes(decided, then.decisions()), NeedRecreation: then.needRecreation(), CPUs: then.cpus(),
	}
}

// needRecreation lists live containers that request CPUs of their own, and can get these only when they are created
// again.
func (v *View) needRecreation() (names []string) {
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		if ctr.Alive() && slices.ContainsFunc(ctr.ProblemSummary.Problems, func(p lifecycle.Problem) bool { return strings.HasSuffix(p.Reason, engine.RecreateHint) }) {
			names = append(names, v.State.FullName(ctr))
		}
	}
	slices.Sort(names)
	return names
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

// settingKey identifies a setting of a container or pod; owner is the container or sandbox id.
type settingKey struct{ owner, setting string }

// decisions returns what is decided for live containers and their pods besides CPUs: class, pool and values. The field
// Before has the text of each decision.
func (v *View) decisions() map[settingKey]api.Change {
	all := map[settingKey]api.Change{}
	add := func(owner, pod, container, setting, text string) {
		all[settingKey{owner, setting}] = api.Change{Pod: pod, Container: container, Setting: setting, Before: text}
	}
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		p := v.State.Pod(ctr.PodID)
		if p == nil || !ctr.Alive() {
			continue
		}
		add(id, p.FullName(), ctr.Name, "class", p.Intent.Class.V.String())
		add(id, p.FullName(), ctr.Name, "pool", ctr.Assignment.Pool.String())
		for _, value := range v.State.Values(ctr) {
			if value.Field != lifecycle.CPUSetCPUs { // the container's CPUs are in Moves
				add(id, p.FullName(), ctr.Name, value.Setting(), value.String())
			}
		}
		for _, value := range p.Values {
			add(ctr.PodID, p.FullName(), "", "pod "+value.Setting(), value.String())
		}
	}
	return all
}

// changes returns the decisions that differ. A decision that only one side has is a change, too, if both sides have
// its container.
func changes(before, after map[settingKey]api.Change) []api.Change {
	var all []api.Change
	for setting, b := range before {
		if a, is := after[setting]; a.Before != b.Before && (is || hasContainer(after, setting, b)) {
			b.After = a.Before
			all = append(all, b)
		}
	}
	for setting, a := range after {
		if _, was := before[setting]; !was && hasContainer(before, setting, a) {
			a.Before, a.After = "", a.Before
			all = append(all, a)
		}
	}
	slices.SortFunc(all, api.Change.Compare)
	return all
}

// hasContainer reports whether decisions include the container of a change, or for a change of a pod, a container of it.
func hasContainer(all map[settingKey]api.Change, setting settingKey, c api.Change) bool {
	_, has := all[settingKey{setting.owner, "class"}]
	return has || c.Container == "" && hasPod(all, c.Pod)
}

// hasPod reports whether a decision of the map is about the pod or one of its containers.
func hasPod(all map[settingKey]api.Change, pod string) bool {
	for _, c := range all {
		if c.Pod == pod {
			return true
		}
	}
	return false
}
