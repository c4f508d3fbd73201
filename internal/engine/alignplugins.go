package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// Affinity returns the NUMA nodes that the topology manager chose for the event's container; nil if it made
// no choice.
func (p *Plan) Affinity() *lifecycle.Affinity {
	if p.Container == nil {
		return nil
	}
	return p.Container.decision.affinity
}

// mergeHints merges the hints of a container as the configured policy of the topology manager requires, and stores the
// merged hint in the container's affinity. If the policy does not admit the container, mergeHints returns the reason as
// refusal, and merges the hints with the policy best-effort instead. used is the policy with which the hints were
// merged.
func (s *placer) mergeHints(hints []numahints.Resource) (got numahints.Result, used numahints.Policy, refusal string) {
	t, m := &s.n.policy.Topology, s.n.machine
	o := numahints.Options{Policy: t.Policy, PreferClosest: t.PreferClosest, Distance: m.Distance, AlignedResources: t.AlignedResources}
	got = numahints.Merge(len(m.Nodes), hints, o)
	if !got.Admitted {
		refusal = "no NUMA nodes meet the policy: " + describeFit(m, hints)
		o.Policy = numahints.BestEffort
		got = numahints.Merge(len(m.Nodes), hints, o)
	}
	a := &lifecycle.Affinity{NUMAHint: numaHint(m, got.Hint()), Refused: refusal}
	for i, h := range got.ResourceHints {
		if a.ByResource == nil {
			a.ByResource = map[string]lifecycle.NUMAHint{}
		}
		a.ByResource[hints[i].Name] = numaHint(m, h)
	}
	s.c.decision.affinity = a
	return got, o.Policy, refusal
}

// alignShared merges the hints of resource plugins and of CDI devices for a new container that owns no CPUs, and so
// chooses NUMA nodes for the container. Plugins allocate on the chosen NUMA nodes, and the agent chooses devices near
// these nodes. If the topology manager does not admit the container, alignShared makes the plan refuse the container,
// or adds a problem.
func alignShared(s *placer) {
	if len(s.c.decision.hints) == 0 && len(s.deviceRequests()) == 0 || s.c.decision.affinity != nil || s.c.Assignment.Pool == placement.Exclusive || !s.n.policy.Topology.applies(s.n.machine) {
		return
	}
	hints := pluginHints(s.n.machine, s.c.decision.hints)
	for _, g := range s.subject().Devices {
		hints = append(hints, deviceHints(s.n.machine, g)...)
	}
	hints = append(hints, s.exclusiveHints()...)
	_, _, refusal := s.mergeHints(hints)
	switch {
	case refusal == "":
	case s.n.policy.Topology.RefuseUnaligned:
		_ = s.rejectUnaligned(refusal)
		s.reportMisaligned(refusal, "the container exists already and keeps running")
	default:
		s.reportMisaligned(refusal, "the agent and resource plugins choose devices as with the policy best-effort")
	}
}

// pluginHints converts the hints of resource plugins for numahints.Merge. It leaves out hints with a NUMA node that
// does not exist.
func pluginHints(m *topology.Machine, of []lifecycle.ResourceHints) (out []numahints.Resource) {
	for _, r := range of {
		one := numahints.Resource{Name: intent.Printable(r.Resource)}
		if r.Hints != nil {
			one.Hints = []numahints.Hint{}
		}
		for _, h := range r.Hints {
			var at numahints.Mask
			unknown := false
			for _, id := range h.Nodes {
				i, ok := m.NodeIndex(id)
				if unknown = unknown || !ok; ok {
					at |= 1 << i
				}
			}
			if !unknown {
				one.Hints = append(one.Hints, numahints.Hint{Nodes: at, Any: at == 0, Preferred: h.Preferred})
			}
		}
		out = append(out, one)
	}
	return out
}

// numaHint converts a hint to a lifecycle.NUMAHint, which has the ids of nodes.
func numaHint(m *topology.Machine, h numahints.Hint) lifecycle.NUMAHint {
	out := lifecycle.NUMAHint{Preferred: h.Preferred}
	if !h.Any {
		out.Nodes = nodeIDs(m, h.Nodes)
	}
	return out
}

// nodeIDs returns the ids of nodes in ascending order.
func nodeIDs(m *topology.Machine, nodes numahints.Mask) (ids []int) {
	for _, i := range nodes.Indices() {
		ids = append(ids, m.Nodes[i].ID)
	}
	slices.Sort(ids)
	return ids
}

// fitsAlone reports whether a single NUMA node has enough of a resource. A resource without hints fits on every node.
func fitsAlone(r numahints.Resource, node int) bool {
	if r.Counts != nil {
		return r.Counts.Free[node] >= r.Counts.Need
	}
	return r.Hints == nil || slices.ContainsFunc(r.Hints, func(h numahints.Hint) bool { return h.Any || h.Nodes == 1<<node })
}
