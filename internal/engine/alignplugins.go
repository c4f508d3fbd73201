package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// Affinity returns what the topology manager chose for the event's container; nil if it made no
// choice.
func (p *Plan) Affinity() *lifecycle.Affinity {
	if p.Container == nil {
		return nil
	}
	return p.Container.decided.affinity
}

// mergeHints merges the hints of a container, and notes the choice. If the policy does not admit
// it, refused says why, and the choice is that of the policy best-effort. used is the policy that
// chose.
func (s *placer) mergeHints(hints []numahints.Resource) (got numahints.Result, used numahints.Policy, refused string) {
	t, m := &s.n.policy.Topology, s.n.machine
	o := numahints.Options{Policy: t.Policy, PreferClosest: t.Closest, Distance: m.Distance, Align: t.Align}
	got = numahints.Merge(len(m.Nodes), hints, o)
	if !got.Admitted {
		refused = "no NUMA nodes meet the policy: " + places(m, hints)
		o.Policy = numahints.BestEffort
		got = numahints.Merge(len(m.Nodes), hints, o)
	}
	a := &lifecycle.Affinity{NUMAHint: numaHint(m, got.Hint()), Refused: refused}
	for i, h := range got.Each {
		if a.Each == nil {
			a.Each = map[string]lifecycle.NUMAHint{}
		}
		a.Each[hints[i].Name] = numaHint(m, h)
	}
	s.c.decided.affinity = a
	return got, o.Policy, refused
}

// alignShared merges the hints of resource plugins for a new container that owns no CPUs: they are
// told the choice, and the policy may refuse the container.
func alignShared(s *placer) {
	if len(s.c.decided.hints) == 0 || s.c.decided.affinity != nil || s.c.Assignment.Pool == placement.Own || !s.n.policy.Topology.on(s.n.machine) {
		return
	}
	hints := pluginHints(s.n.machine, s.c.decided.hints)
	for _, g := range s.subject().Devices {
		hints = append(hints, deviceHints(s.n.machine, g)...)
	}
	_, _, refused := s.mergeHints(hints)
	switch {
	case refused == "":
	case s.n.policy.Topology.Refuse:
		_ = s.unalign(refused)
		s.misaligned(refused, "the container exists already, and cannot be refused")
	default:
		s.misaligned(refused, "resource plugins get what the policy best-effort chooses")
	}
}

// pluginHints converts hints of resource plugins. A set with a node that does not exist is left out.
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

// numaHint is a hint with the ids of its nodes.
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

// fitsAlone reports whether a resource can be had on one node alone.
func fitsAlone(r numahints.Resource, node int) bool {
	if r.Counts != nil {
		return r.Counts.Free[node] >= r.Counts.Need
	}
	return r.Hints == nil || slices.ContainsFunc(r.Hints, func(h numahints.Hint) bool { return h.Any || h.Nodes == 1<<node })
}
