package topologyaware

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// wantsReserved reports whether a container should use the reserved CPUs. It also returns the key that decides this:
// an annotation of the container's pod, or else reservedPoolNamespaces.
func (p *Policy) wantsReserved(s placement.Subject) (is bool, key string) {
	if asked := s.Intent.PreferReserved.V.Of(s.Name); asked.IsSet() {
		return asked.V, asked.Key
	}
	is = s.Pod != nil && slices.ContainsFunc(p.options.ReservedPoolNamespaces, func(pattern string) bool { return intent.MatchNamespace(pattern, s.Pod.Namespace) })
	return is, ConfigKey + ".reservedPoolNamespaces"
}

// wantsShared reports whether a container should share CPUs although it requests whole CPUs. It also returns the key
// that decides this: an annotation of the container's pod, or else the section of the policy.
func (p *Policy) wantsShared(s placement.Subject) (yes bool, key string) {
	if asked := s.Intent.PreferShared.V.Of(s.Name); asked.IsSet() {
		return asked.V, asked.Key
	}
	return p.options.PreferSharedCPUs, ConfigKey
}

// requiresIsolated returns the key of the annotation that requires isolated CPUs for a container that owns CPUs; ""
// for none. Like in nri-plugins, a preference about isolated CPUs for one container has priority over a requirement
// for the whole pod.
func requiresIsolated(s placement.Subject) string {
	all := s.Intent.RequireIsolated.V
	_, requires := all.ByContainer[s.Name]
	if _, prefers := s.Intent.PreferIsolated.V.ByContainer[s.Name]; prefers && !requires {
		return ""
	}
	if asked := all.Of(s.Name); asked.V {
		return asked.Key
	}
	return ""
}

// preservesCPU returns the key of the annotation that makes a container use the CPUs of the runtime's request; "" for
// none.
func preservesCPU(s placement.Subject) string {
	if asked := s.Intent.PreserveCPU.V.Of(s.Name); asked.V {
		return asked.Key
	}
	return ""
}

// preservesMemory reports whether an annotation makes a container use the memory nodes of the runtime's request.
func preservesMemory(s placement.Subject) bool { return s.Intent.PreserveMemory.V.Of(s.Name).V }

// SchedulingOf returns the scheduling class of a container: the class that its pod names, or else the class
// of its namespace, or else the class of its QoS class.
func (p *Policy) SchedulingOf(s placement.Subject) (lifecycle.SchedulingClass, []lifecycle.Problem) {
	name, key := p.schedulingClass(s)
	return p.options.SchedulingClasses.ClassOf(s, ConfigKey, "the container gets the class of its namespace or QoS class", name, key)
}

// schedulingClass returns the name of the scheduling class that the configuration gives a container, and the
// configuration key that decides.
func (p *Policy) schedulingClass(s placement.Subject) (name, key string) {
	for _, of := range p.options.NamespaceSchedulingClasses {
		if slices.ContainsFunc(of.Namespaces, func(pattern string) bool { return intent.MatchNamespace(pattern, s.Pod.Namespace) }) {
			return of.SchedulingClass, ConfigKey + ".namespaceSchedulingClasses"
		}
	}
	for _, of := range p.options.PodQoSSchedulingClasses {
		if of.QoSClass == s.Intent.QoS.String() {
			return of.SchedulingClass, ConfigKey + ".podQoSSchedulingClasses"
		}
	}
	return "", ""
}

// threadsOf returns on how many threads of each core a container wants to run: one, or the default.
func threadsOf(s placement.Subject) placement.Threads {
	if s.Intent.HideThreads.V.Of(s.Name).V {
		return placement.OneThread
	}
	return placement.DefaultThreads
}

// memoryOf returns the memory that the annotations request for a container: kinds of memory, the memory nodes of the
// runtime's request, or a cold start.
func memoryOf(s placement.Subject) placement.MemoryChoice {
	asked, cold := s.Intent.MemoryKinds.V.Of(s.Name), s.Intent.ColdStart.V.Of(s.Name)
	return placement.MemoryChoice{Kinds: asked.V, From: asked.Key, KeepRequested: preservesMemory(s), ColdStartSeconds: cold.V, ColdStartKey: cold.Key}
}

// affinityOf returns how much each part of the node attracts a container. Like in nri-plugins, colocatePods and
// colocateNamespaces have no effect on a container for which the pod has affinity annotations.
func (p *Policy) affinityOf(v placement.View, s placement.Subject) affinity {
	a := affinity{tree: p.tree}
	if len(s.Intent.AffinitiesOf(s.Name)) > 0 {
		by := s.AffinityWeights()
		for i := range p.tree {
			a.attract(i, float64(by[p.tree[i].name]))
		}
		return a
	}
	if p.options.ColocatePods {
		for _, n := range s.Neighbours {
			a.attract(p.partIndex(n.Pool, n.Owned), colocationWeight)
		}
	}
	if p.options.ColocateNamespaces && v.CountMembers != nil && s.Pod != nil {
		for i := range p.tree {
			a.attract(i, colocationWeight*float64(v.CountMembers(placement.Membership{Balloon: p.tree[i].name, Namespace: s.Pod.Namespace})))
		}
	}
	return a
}
