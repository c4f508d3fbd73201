package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// SavedState is a whole state in a form that can be encoded as JSON. A recording of events begins with a SavedState. It
// leaves out values that Restore computes from the policy. Sets of CPUs have indexes into Machine.CPUs.
type SavedState struct {
	Generation uint64 // State.Generation
	Pods       []SavedPod
	// Containers has the containers of each pod, the oldest first.
	Containers []SavedContainer
	// Grants has the grants of each pod, the oldest first. Reserved has the CPUs that their owners cannot use now.
	Grants   []placement.Grant
	Reserved []placement.Grant
	// Devices has the CDI devices that containers have exclusively, by pod UID and container name.
	Devices map[string]map[string][]string `json:",omitempty"`
	// Ended has the ids of the sandboxes that were removed last, the oldest first.
	Ended []string
	// Balloons has, by name, the CPUs that only one balloon or one component of a composite balloon has.
	Balloons map[string]topology.Set
}

// SavedPod is a pod of a SavedState. Its fields have the values of the fields of Pod with the same names. Problems is
// the pod's ProblemSummary, and Malformed is the malformedReason in this summary.
type SavedPod struct {
	Pod             *lifecycle.Pod
	Spec            *lifecycle.PodSpec
	Granted         *lifecycle.KubeletGrants
	AllowedCPUs     topology.Set `json:"Within"`
	Values          []SavedValue
	Problems        ProblemSummary
	Malformed       string
	Stopped         bool
	RequestFromSpec bool                            `json:"bySpec"`
	BurstSum        int64                           `json:"bursts"`
	ExclusiveCPUs   topology.Set                    `json:"exclusive"`
	AssignedCPUs    topology.Set                    `json:"assigned"`
	SumOutdated     bool                            `json:"SumOld"`
	EndedRequests   map[string]*lifecycle.Resources `json:"ended"`
	SpecProblems    []lifecycle.Problem
}

// SavedContainer is a container of a SavedState. The fields after Pristine are unexported fields of Container, which
// its JSON form leaves out. RunningCPUs is Undescribed.kernelCPUs. Malformed is ProblemSummary.malformedReason.
type SavedContainer struct {
	Container *Container
	// Pristine is the runtime's request for the container, which the JSON form of Container leaves out.
	Pristine      lifecycle.Resources
	DecidedBefore bool
	RunningCPUs   topology.Set `json:"Bound"`
	Malformed     string
	Proposed      []SavedValue
	CPUSetLimited bool                `json:"narrowed"`
	PriorProblems []lifecycle.Problem `json:"Distrust"`
	Refusals      []lifecycle.Problem
}

// SavedValue is a value with the properties that the JSON form of Value leaves out. OfPod means that the value's Scope
// is OfPod: the value is for the pod's own cgroup. Scaled has the value of the field Scaled of Value.
type SavedValue struct {
	Value  lifecycle.Value
	OfPod  bool
	Scaled bool
}

// Save returns the state as a SavedState. The result shares pods and containers with the state. Callers use a
// Copy if the state continues to change.
func (s *State) Save() *SavedState {
	out := &SavedState{Generation: s.Generation, Reserved: s.ledger.Reservations(), Ended: slices.Clone(s.endedPods.order), Balloons: s.Balloons(), Devices: s.HeldDevices()}
	uids := map[string]bool{}
	for _, g := range s.ledger.Grants() {
		uids[g.Key.PodUID] = true
	}
	for _, uid := range sortedKeys(uids) {
		out.Grants = append(out.Grants, s.ledger.GrantsOfPod(uid)...)
	}
	for _, id := range s.Pods() {
		p := s.pods[id]
		out.Pods = append(out.Pods, SavedPod{
			Pod: p.Pod, Spec: p.Spec, Granted: p.Granted, AllowedCPUs: p.AllowedCPUs, Values: savedValues(p.Values), Problems: p.ProblemSummary, Malformed: p.ProblemSummary.malformedReason,
			Stopped: p.Stopped, RequestFromSpec: p.requestFromSpec, BurstSum: p.burstSum, ExclusiveCPUs: p.exclusiveCPUs, AssignedCPUs: p.assignedCPUs, SumOutdated: p.sumOutdated, EndedRequests: p.endedRequests, SpecProblems: p.specProblems,
		})
	}
	for _, podID := range sortedKeys(s.containerIDsByPod) {
		for _, id := range s.containerIDsByPod[podID] {
			c := s.containers[id]
			out.Containers = append(out.Containers, SavedContainer{
				Container: c, Pristine: c.Pristine, DecidedBefore: c.Stamp.decidedBefore, RunningCPUs: c.Undescribed.kernelCPUs, Malformed: c.ProblemSummary.malformedReason,
				Proposed: savedValues(c.decision.proposed), CPUSetLimited: c.decision.cpusetLimited, PriorProblems: c.decision.priorProblems, Refusals: c.decision.refusals,
			})
		}
	}
	return out
}

// Restore returns the state that was saved in a SavedState. The machine must be the same. With another policy than the
// policy of the saved state, Restore keeps the saved decisions. Callers then call Reconfigure, which decides everything
// again.
func Restore(m *topology.Machine, p Policy, from *SavedState) *State {
	s := NewState(m, p)
	s.Generation = from.Generation
	for _, g := range from.Grants {
		s.ledger.Put(g)
	}
	for _, g := range from.Reserved {
		s.ledger.Reserve(g)
	}
	for uid, of := range from.Devices {
		for container, names := range of {
			s.ledger.SetDevices(placement.Key{PodUID: uid, Container: container}, names)
		}
	}
	for _, id := range from.Ended {
		s.endedPods.add(id)
	}
	for i := range from.Pods {
		if of := &from.Pods[i]; of.Pod != nil {
			s.pods[of.Pod.ID] = s.restoredPod(of)
		}
	}
	d := newDraft(s, Facts{})
	if len(from.Balloons) > 0 {
		d.n.baseLayout = &placement.Layout{Balloons: placement.BalloonsFromCPUs(from.Balloons)}
	}
	for i := range from.Containers {
		if of := &from.Containers[i]; of.Container != nil {
			c := restoredContainer(of)
			d.n.put(c.ID, c)
		}
	}
	d.n.ledger.grantsChanged = true // so that d.n.layout computes a new layout
	s.layout = d.n.layout(nil)
	for _, id := range d.n.changeOrder {
		s.putContainer(id, d.n.containers[id])
	}
	s.refreshGroups(nil, false)
	return s
}

// restoredPod returns a pod of a SavedState. It reads the pod's intent again from annotations, labels and spec.
func (s *State) restoredPod(of *SavedPod) *Pod {
	p := &Pod{
		Pod: of.Pod, Spec: of.Spec, Granted: of.Granted, AllowedCPUs: of.AllowedCPUs, Values: restoredValues(of.Values), ProblemSummary: of.Problems,
		Stopped: of.Stopped, requestFromSpec: of.RequestFromSpec, burstSum: of.BurstSum, exclusiveCPUs: of.ExclusiveCPUs, assignedCPUs: of.AssignedCPUs, sumOutdated: of.SumOutdated, endedRequests: of.EndedRequests, specProblems: of.SpecProblems,
	}
	p.ProblemSummary.malformedReason = of.Malformed
	p.Intent = s.Policy.Rules.Authorise(s.Policy.Serving.Read(p.Pod, p.Spec, s.Policy.Dialects), p.Pod.Namespace)
	return p
}

// restoredContainer returns a container of a SavedState.
func restoredContainer(of *SavedContainer) *Container {
	c := *of.Container
	c.Pristine, c.Stamp.decidedBefore, c.Undescribed.kernelCPUs, c.ProblemSummary.malformedReason = of.Pristine, of.DecidedBefore, of.RunningCPUs, of.Malformed
	c.decision = decision{proposed: restoredValues(of.Proposed), cpusetLimited: of.CPUSetLimited, priorProblems: of.PriorProblems, refusals: of.Refusals}
	return &c
}

// savedValues returns values in the form of SavedState.
func savedValues(all []lifecycle.Value) (out []SavedValue) {
	for _, v := range all {
		out = append(out, SavedValue{v, v.Scope == lifecycle.OfPod, v.Scaled})
	}
	return out
}

// restoredValues returns the values of a SavedState.
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
