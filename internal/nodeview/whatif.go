package nodeview

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// WhatIf simulates that pods are created now, one after another. It returns the decisions for these pods, and how the
// decisions about all other pods change. It works on a copy of the state, so nothing changes on the node.
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

// WhatIfConfigured simulates a new policy. It returns which containers get other CPUs, classes and values.
func WhatIfConfigured(copier StateCopier, p engine.Policy) api.Plan {
	then := View{State: copier.CopyState()}
	was, decided := then.assignments(), then.decisions()
	then.State.Reconfigure(p)
	return api.Plan{
		Moves: moves(was, then.assignments()), Changes: changes(decided, then.decisions()), NeedRecreation: then.containersToRecreate(), CPUs: then.cpus(),
	}
}

// containersToRecreate lists live containers that request CPUs of their own, and can get these CPUs only when the kubelet
// creates the containers again.
func (v *View) containersToRecreate() (names []string) {
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		if ctr.Alive() && slices.ContainsFunc(ctr.ProblemSummary.Problems, func(p lifecycle.Problem) bool { return strings.HasSuffix(p.Reason, engine.RecreateHint) }) {
			names = append(names, v.State.FullName(ctr))
		}
	}
	slices.Sort(names)
	return names
}

// StateCopier returns a copy of the conductor's state.
type StateCopier interface {
	CopyState() *engine.State
}

// assignments returns the CPUs of all live containers, by container id. The field Before has the CPUs.
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

// moves returns the containers whose CPUs differ between the two results of assignments.
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

// changes compares two results of the method decisions, and returns the decisions that differ. If a decision is only in
// one of the results, it is a change only if the other result has decisions about the same container (or pod).
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

// hasContainer reports whether one of the decisions is about the container that the change c is about. If c is about a
// pod, hasContainer reports whether one of the decisions is about this pod or one of its containers.
func hasContainer(decisions map[settingKey]api.Change, setting settingKey, c api.Change) bool {
	_, has := decisions[settingKey{setting.owner, "class"}]
	return has || c.Container == "" && hasPod(decisions, c.Pod)
}

// hasPod reports whether one of the decisions is about the pod or one of its containers.
func hasPod(decisions map[settingKey]api.Change, pod string) bool {
	for _, c := range decisions {
		if c.Pod == pod {
			return true
		}
	}
	return false
}
