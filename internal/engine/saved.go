package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Saved is a whole state as data. A recording of events begins with it. It leaves out values
// that follow from the policy; Restore decides these again. Sets of CPUs use the machine's CPU
// indexes.
type Saved struct {
	Generation uint64
	Pods       []SavedPod
	// Containers are the containers of each pod in order of arrival.
	Containers []SavedContainer
	// Grants are the grants of each pod in order of arrival.
	Grants   []placement.Grant
	Reserved []placement.Grant
	Ended    []string
	// Balloons are the CPUs of each balloon.
	Balloons map[string]topology.Set
}

// SavedPod is a pod of a Saved.
type SavedPod struct {
	Pod          *lifecycle.Pod
	Spec         *lifecycle.PodSpec
	Granted      *lifecycle.KubeletGrants
	Within       topology.Set
	Values       []SavedValue
	Problems     ProblemSummary
	Malformed    string
	Stopped      bool
	BySpec       bool
	Bursts       int64
	Exclusive    topology.Set
	Assigned     topology.Set
	SumOld       bool
	Ended        map[string]*lifecycle.Resources
	SpecProblems []lifecycle.Problem
}

// SavedContainer is a container of a Saved.
type SavedContainer struct {
	Container *Container
	// Pristine is the container's runtime request. Records store it in another form.
	Pristine      lifecycle.Resources
	DecidedBefore bool
	Bound         topology.Set
	Malformed     string
	Proposed      []SavedValue
	Narrowed      bool
	Distrust      []lifecycle.Problem
	Refusals      []lifecycle.Problem
}

// SavedValue is a value together with the properties that reports leave out.
type SavedValue struct {
	Value  lifecycle.Value
	OfPod  bool
	Scaled bool
}

// Save returns a state as data. Call it on a Copy if the state continues to change. The result
// shares pods and containers with the state.
func (s *State) Save() *Saved {
	out := &Saved{Generation: s.Generation, Reserved: s.ledger.AllReserved(), Ended: slices.Clone(s.ended.order), Balloons: s.Balloons()}
	uids := map[string]bool{}
	for _, g := range s.ledger.Grants() {
		uids[g.Key.PodUID] = true
	}
	for _, uid := range sortedKeys(uids) {
		out.Grants = append(out.Grants, s.ledger.OfPodByContainer(uid)...)
	}
	for _, id := range s.Pods() {
		p := s.pods[id]
		out.Pods = append(out.Pods, SavedPod{
			Pod: p.Pod, Spec: p.Spec, Granted: p.Granted, Within: p.Within, Values: savedValues(p.Values), Problems: p.ProblemSummary, Malformed: p.ProblemSummary.malformed,
			Stopped: p.Stopped, BySpec: p.bySpec, Bursts: p.bursts, Exclusive: p.exclusive, Assigned: p.assigned, SumOld: p.sumOld, Ended: p.ended, SpecProblems: p.specProblems,
		})
	}
	for _, podID := range sortedKeys(s.byPod) {
		for _, id := range s.byPod[podID] {
			c := s.containers[id]
			out.Containers = append(out.Containers, SavedContainer{
				Container: c, Pristine: c.Pristine, DecidedBefore: c.Stamp.decidedBefore, Bound: c.Undescribed.bound, Malformed: c.ProblemSummary.malformed,
				Proposed: savedValues(c.decided.proposed), Narrowed: c.decided.narrowed, Distrust: c.decided.distrust, Refusals: c.decided.refusals,
			})
		}
	}
	return out
}

// Restore returns the saved state, for the same machine and policy. With another policy, it
// keeps the saved decisions as if that policy had made them; call Reconfigure to decide
// everything again.
func Restore(m *topology.Machine, p Policy, from *Saved) *State {
	s := NewState(m, p)
	s.Generation = from.Generation
	for _, g := range from.Grants {
		s.ledger.Put(g)
	}
	for _, g := range from.Reserved {
		s.ledger.Reserve(g)
	}
	for _, id := range from.Ended {
		s.ended.add(id)
	}
	for i := range from.Pods {
		if of := &from.Pods[i]; of.Pod != nil {
			s.pods[of.Pod.ID] = s.restoredPod(of)
		}
	}
	d := newDraft(s, Facts{})
	if len(from.Balloons) > 0 {
		d.n.before = &placement.Layout{Balloons: placement.HeldBy(from.Balloons)}
	}
	for i := range from.Containers {
		if of := &from.Containers[i]; of.Container != nil {
			c := restoredContainer(of)
			d.n.put(c.ID, c)
		}
	}
	d.n.ledger.moved = true // all pools are computed anew
	s.layout = d.n.layout(nil)
	for _, id := range d.n.order {
		s.put(id, d.n.containers[id])
	}
	s.refreshGroups(nil)
	return s
}

func (s *State) restoredPod(of *SavedPod) *Pod {
	p := &Pod{
		Pod: of.Pod, Spec: of.Spec, Granted: of.Granted, Within: of.Within, Values: restoredValues(of.Values), ProblemSummary: of.Problems,
		Stopped: of.Stopped, bySpec: of.BySpec, bursts: of.Bursts, exclusive: of.Exclusive, assigned: of.Assigned, sumOld: of.SumOld, ended: of.Ended, specProblems: of.SpecProblems,
	}
	p.ProblemSummary.malformed = of.Malformed
	p.Intent = s.Policy.Rules.Authorise(s.Policy.Serving.Read(p.Pod, p.Spec, s.Policy.Dialects), p.Pod.Namespace)
	return p
}

func restoredContainer(of *SavedContainer) *Container {
	c := *of.Container
	c.Pristine, c.Stamp.decidedBefore, c.Undescribed.bound, c.ProblemSummary.malformed = of.Pristine, of.DecidedBefore, of.Bound, of.Malformed
	c.decided = decision{proposed: restoredValues(of.Proposed), narrowed: of.Narrowed, distrust: of.Distrust, refusals: of.Refusals}
	return &c
}

func savedValues(all []lifecycle.Value) (out []SavedValue) {
	for _, v := range all {
		out = append(out, SavedValue{v, v.Scope == lifecycle.OfPod, v.Scaled})
	}
	return out
}

func restoredValues(all []SavedValue) (out []lifecycle.Value) {
	for _, s := range all {
		v := s.Value
		if v.Scaled = s.Scaled; s.OfPod {
			v.Scope = lifecycle.OfPod
		}
		out = append(out, v)
	}
	return out
}
