package topologyaware

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
)

// reserved reports whether a container belongs on the reserved CPUs, and the key that says so: its
// own wish, or else its namespace.
func (p *Policy) reserved(s placement.Subject) (is bool, key string) {
	if asked := s.Intent.PreferReserved.V.Of(s.Name); asked.IsSet() {
		return asked.V, asked.Key
	}
	is = s.Pod != nil && slices.ContainsFunc(p.o.ReservedPoolNamespaces, func(pattern string) bool { return intent.MatchNamespace(pattern, s.Pod.Namespace) })
	return is, Key + ".reservedPoolNamespaces"
}

// shares reports whether a container shares CPUs although it requests whole ones, and the key that
// decides.
func (p *Policy) shares(s placement.Subject) (yes bool, key string) {
	if asked := s.Intent.PreferShared.V.Of(s.Name); asked.IsSet() {
		return asked.V, asked.Key
	}
	return p.o.PreferSharedCPUs, Key
}

// preservesCPU returns the key that keeps a container's CPUs as requested; "" for none.
func preservesCPU(s placement.Subject) string {
	if asked := s.Intent.PreserveCPU.V.Of(s.Name); asked.V {
		return asked.Key
	}
	return ""
}

func preservesMemory(s placement.Subject) bool { return s.Intent.PreserveMemory.V.Of(s.Name).V }

// threadsOf returns the threads that a container asks for.
func threadsOf(s placement.Subject) placement.Threads {
	if s.Intent.HideThreads.V.Of(s.Name).V {
		return placement.OneThread
	}
	return placement.ThreadsOfType
}

// memoryOf returns the kinds of memory that a container asks for.
func memoryOf(s placement.Subject) placement.MemoryChoice {
	asked := s.Intent.MemoryKinds.V.Of(s.Name)
	return placement.MemoryChoice{Kinds: asked.V, From: asked.Key, Keep: preservesMemory(s)}
}

// affinityOf returns the affinity of each part of the node for a container; nil for none. An
// explicit one precedes that of colocatePods, as in nri-plugins.
func (p *Policy) affinityOf(s placement.Subject) affinity {
	a := affinity{tree: p.tree}
	explicit := s.Intent.Affinity.IsSet() || s.Intent.AntiAffinity.IsSet()
	for _, n := range s.Neighbours {
		at := p.tree.named(n.Pool)
		if !n.Owned.Empty() {
			at = p.tree.smallest(n.Owned)
		}
		switch {
		case explicit:
			a.attract(at, weightOf(s.Intent.Affinity.V, s.Name, n.Name)-weightOf(s.Intent.AntiAffinity.V, s.Name, n.Name))
		case p.o.ColocatePods:
			a.attract(at, colocated)
		}
	}
	return a
}

// weightOf is 1 if one of two containers names the other.
func weightOf(all map[string][]string, a, b string) float64 {
	if slices.Contains(all[a], b) || slices.Contains(all[b], a) {
		return 1
	}
	return 0
}
