// Package claims is the placement policy for a node where resource claims decide which containers own CPUs: a driver
// for dynamic resource allocation (DRA) gives the CPUs to claims. The agent itself gives no container CPUs of its own.
// It keeps all other containers off the CPUs of claims, and places these containers by another policy.
package claims

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the policy for authority: dra. The embedded Policy is the other policy, which places containers that own no
// CPUs.
type Policy struct{ placement.Policy }

// errClaimsDecide is the reason why the agent does not give a container CPUs of its own.
var errClaimsDecide = errors.New("under authority: dra, resource claims decide who owns CPUs: give the pod a resource claim for CPUs")

// Terms returns the conditions under which a container owns CPUs: the conditions of the other policy with one change.
// The agent itself does not give the container CPUs. The container owns the CPUs of its resource claims.
func (p Policy) Terms(m *topology.Machine, s placement.Subject) placement.Terms {
	t := p.Policy.Terms(m, s).WithoutGrants(errClaimsDecide)
	t.ByClaims = true
	if s.Claims != nil {
		t.External = externalGrant(m, s.Claims)
	}
	return t
}

// PartOf returns the name of the part of the node in which the other policy placed the containers of a group.
func (p Policy) PartOf(g placement.CPUGroup) string { return placement.PartOf(p.Policy, g) }

// SchedulingOf returns the scheduling class that the other policy chooses for a container.
func (p Policy) SchedulingOf(s placement.Subject) (lifecycle.SchedulingClass, []lifecycle.Problem) {
	return placement.SchedulingOf(p.Policy, s)
}

// BalloonOf returns the name of the nth balloon of a container's balloon type, as the other policy names it.
func (p Policy) BalloonOf(s placement.Subject, nth int) string {
	return placement.BalloonOf(p.Policy, s, nth)
}

// externalGrant returns the CPUs that resource claims give to a container. If one of the claims is invalid, the grant
// has no CPUs.
func externalGrant(m *topology.Machine, all *lifecycle.ClaimGrant) placement.ExternalGrant {
	g := placement.ExternalGrant{
		From: placement.ByClaims, SentenceStart: "its resource claims give it",
		Claims: map[string]topology.Set{}, Problems: all.Problems,
	}
	var names []string
	for _, c := range all.Claims {
		known := m.KnownCPUsOf(topology.FormatList(c.CPUs))
		if known.Len() != len(c.CPUs) {
			return refusedGrant(g, lifecycle.Problem{
				Key: "authority", Value: topology.FormatList(c.CPUs), Refused: true, Then: "the container owns none of these CPUs",
				Reason: fmt.Sprintf("%s gives the container CPUs that this node does not have", claimName(c)),
			})
		}
		g.CPUs, g.Offline = g.CPUs.Union(known.And(m.Online())), g.Offline.Union(known.Minus(m.Online()))
		if g.Claims[c.UID] = known; !known.Empty() {
			names = append(names, claimName(c))
		}
	}
	for i := range all.Problems {
		if all.Problems[i].Refused {
			return refusedGrant(g)
		}
	}
	g.Why = "owned because of " + strings.Join(names, " and ")
	return g
}

// refusedGrant returns a grant without CPUs. The grant has the problems of g, and further problems from the parameter
// more.
func refusedGrant(g placement.ExternalGrant, more ...lifecycle.Problem) placement.ExternalGrant {
	problems := append(append([]lifecycle.Problem(nil), g.Problems...), more...)
	return placement.ExternalGrant{From: g.From, SentenceStart: g.SentenceStart, Problems: problems}
}

// claimName returns "resource claim" and the name of the claim, or the claim's UID if the name is unknown.
func claimName(c lifecycle.Claim) string {
	return "resource claim " + cmp.Or(c.Name, c.UID)
}
