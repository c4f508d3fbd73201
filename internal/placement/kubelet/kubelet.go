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

// errOwns is why the agent grants no CPUs.
var errOwns = errors.New("authority: kubelet says that its static CPU manager decides who owns CPUs: it gives them to containers of Guaranteed pods that ask for whole ones")

// Terms returns those of the other policy, but the agent grants nothing: the container owns
// what the kubelet gave it, by its PodResources API, or by its request to the runtime if the
// API does not say.
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
		tell(fmt.Sprintf("the kubelet asks for these CPUs, and its PodResources API says that it gave the container CPUs %s", m.Format(g.CPUs)),
			"what the API says counts")
	case g.CPUs.Empty() && !inferred.Empty():
		tell("the kubelet asks for these CPUs as if it had given them to the container alone, and its PodResources API says that it gave it none",
			"what the API says counts: it owns none")
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
