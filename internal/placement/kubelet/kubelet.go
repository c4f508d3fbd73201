// Package kubelet is the placement policy for a node where the kubelet's static CPU and memory
// managers decide which containers own CPUs. The agent itself grants no CPUs. It places all other
// containers by another policy, on CPUs that no container owns.
package kubelet

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the policy for the option authority: kubelet. The embedded policy places the containers that own no CPUs.
type Policy struct{ placement.Policy }

// errKubeletDecides is the reason why the agent grants no CPUs with this policy.
var errKubeletDecides = errors.New("under authority: kubelet, the kubelet's static CPU manager decides who owns CPUs: it gives CPUs to containers of Guaranteed pods that request whole CPUs")

// Terms returns the conditions under which a container owns CPUs: the conditions of the embedded policy, except that
// the agent itself grants no CPUs. A container owns the CPUs that the kubelet's PodResources API reports for the
// container. If the API reports nothing, the kubelet's request to the runtime decides: a container of a Guaranteed pod
// owns the CPUs of this request if they are as many CPUs as the pod's author requested for the container.
func (p Policy) Terms(m *topology.Machine, s placement.Subject) placement.Terms {
	t := p.Policy.Terms(m, s).WithoutGrants(errKubeletDecides)
	if s.Requested != nil {
		t.External = externalGrant(m, s)
	}
	return t
}

// PartOf returns the name of the part of the node in which the embedded policy placed the containers of a group.
func (p Policy) PartOf(g placement.CPUGroup) string { return placement.PartOf(p.Policy, g) }

// SchedulingOf returns the scheduling class that the embedded policy chooses for a container.
func (p Policy) SchedulingOf(s placement.Subject) (lifecycle.SchedulingClass, []lifecycle.Problem) {
	return placement.SchedulingOf(p.Policy, s)
}

// BalloonOf returns the name of the nth balloon of a container's balloon type in the embedded policy.
func (p Policy) BalloonOf(s placement.Subject, nth int) string {
	return placement.BalloonOf(p.Policy, s, nth)
}

// Share lets the embedded policy choose where a container without own CPUs runs. If the kubelet's memory manager bound
// the container's memory to NUMA nodes, the policy can choose only these nodes.
func (p Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	s.AllowedNodes = memoryNodes(s)
	return p.Policy.Share(v, s)
}

// externalGrant returns the CPUs and memory nodes that the kubelet gave to a container. It reports a contradiction
// between the kubelet's request to the runtime and its PodResources API as a problem.
func externalGrant(m *topology.Machine, s placement.Subject) placement.ExternalGrant {
	asked := s.Requested.CPU.CPUs
	g := placement.ExternalGrant{
		From: placement.ByKubelet, SentenceStart: "the kubelet gave it",
		CPUs: placement.KubeletCPUsByRequest(m, s.Intent, s.Requested), Offline: m.KnownCPUsOf(asked).Minus(m.Online()), Mems: memoryNodes(s),
		Why: "owned because of the kubelet: the container requests whole CPUs, and its cpuset has as many CPUs",
	}
	if !s.KubeletGrant.Reported {
		return g
	}
	inferred := g.CPUs
	g.CPUs, g.Why = m.OnlineCPUs(s.KubeletGrant.CPUs), "owned because of the kubelet: its PodResources API reports these CPUs"
	g.Offline = m.KnownCPUsOf(topology.FormatList(s.KubeletGrant.CPUs)).Minus(m.Online())
	warn := func(reason, then string) {
		g.Problems = []lifecycle.Problem{{Key: "authority", Value: m.Format(m.OnlineOf(asked)), Warning: true, Reason: reason, Then: then}}
	}
	switch has := m.OnlineOf(asked); {
	case !g.CPUs.Empty() && !has.Empty() && has != g.CPUs:
		warn(fmt.Sprintf("the kubelet requested these CPUs from the runtime, but its PodResources API reports that the container has CPUs %s", m.Format(g.CPUs)),
			"the agent uses the CPUs of the PodResources API")
	case g.CPUs.Empty() && !inferred.Empty():
		warn("the kubelet's request to the runtime looks like a grant of these CPUs, but its PodResources API reports no exclusive CPUs",
			"the agent believes the PodResources API, so the container owns no CPUs")
	}
	return g
}

// memoryNodes lists the memory nodes to which the kubelet's memory manager bound a container.
func memoryNodes(s placement.Subject) []int {
	if len(s.KubeletGrant.Mems) > 0 || s.Requested == nil {
		return s.KubeletGrant.Mems
	}
	asked, err := topology.ParseList(s.Requested.CPU.Mems)
	if err != nil {
		return nil // the runtime refuses an invalid list
	}
	return asked
}
