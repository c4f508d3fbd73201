// Package kubelet is the placement policy for a node where the kubelet's static CPU and memory
// managers decide who owns CPUs. The agent keeps all other containers off these CPUs, places
// those by another policy, and grants no CPUs itself.
package kubelet

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is authority: kubelet. It uses another policy for containers that own no CPUs.
type Policy struct{ placement.Policy }

// errOwns is the reason why the agent grants no CPUs.
var errOwns = errors.New("authority: kubelet says that its static CPU manager decides who owns CPUs: it gives them to containers of Guaranteed pods that ask for whole ones")

// Terms returns the terms of the other policy, but the agent grants no CPUs itself. The
// container owns the CPUs that the kubelet reports in its PodResources API or, if the API
// reports nothing, requests from the runtime.
func (p Policy) Terms(m *topology.Machine, s placement.Subject) placement.Terms {
	t := p.Policy.Terms(m, s)
	if t.DecidedElsewhere = errOwns; t.Pays == placement.WholeCPUs {
		t.Pays, t.Key = placement.Nothing, ""
	}
	if s.Requested != nil {
		t.External = given(m, s)
	}
	return t
}

// Share keeps containers on the nodes to which the kubelet's memory manager bound their memory.
func (p Policy) Share(v placement.View, s placement.Subject) placement.Assignment {
	s.Only = mems(s)
	return p.Policy.Share(v, s)
}

func given(m *topology.Machine, s placement.Subject) placement.ExternalGrant {
	asked := s.Requested.CPU.CPUs
	g := placement.ExternalGrant{
		CPUs: placement.Pinned(m, s.Intent, s.Requested), Offline: m.PlacesOf(asked).Minus(m.Online()), Mems: mems(s),
		Why: "owned because of the kubelet: its request is whole CPUs, and its cpuset has as many",
	}
	if !s.KubeletGrant.Reported {
		return g
	}
	inferred := g.CPUs
	g.CPUs, g.Why = m.OnlineIDs(s.KubeletGrant.CPUs), "owned because of the kubelet, by its PodResources API"
	g.Offline = m.PlacesOf(topology.FormatList(s.KubeletGrant.CPUs)).Minus(m.Online())
	tell := func(reason, then string) {
		g.Problems = []lifecycle.Problem{{Key: "authority", Value: m.Format(m.OnlineOf(asked)), Warning: true, Reason: reason, Then: then}}
	}
	switch has := m.OnlineOf(asked); {
	case !g.CPUs.Empty() && !has.Empty() && has != g.CPUs:
		tell(fmt.Sprintf("the kubelet requested these CPUs from the runtime, but its PodResources API reports that the container has CPUs %s", m.Format(g.CPUs)),
			"the agent uses the API's answer")
	case g.CPUs.Empty() && !inferred.Empty():
		tell("the kubelet's request to the runtime looks like a grant of these CPUs, but its PodResources API reports no exclusive CPUs",
			"the agent uses the API's answer, so the container owns no CPUs")
	}
	return g
}

// mems lists the memory nodes to which the kubelet's memory manager bound a container.
func mems(s placement.Subject) []int {
	if len(s.KubeletGrant.Mems) > 0 || s.Requested == nil {
		return s.KubeletGrant.Mems
	}
	asked, err := topology.ParseList(s.Requested.CPU.Mems)
	if err != nil {
		return nil // the runtime refuses it, too
	}
	return asked
}
