package engine

import (
	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
)

// This file counts the live containers that each affinity with a scope matches, by part of the node. The counts come
// from an index of all containers, so that the cost of a creation does not depend on the number of containers.

// scopeCount counts the live containers that an affinity matches, by part of the node. A part is, for example, a
// socket or a NUMA node (policy topology-aware).
type scopeCount struct {
	affinity *intent.Affinity
	byPart   map[string]int
}

// partOf returns the part of the node in which a policy placed a container; "" if none, or if the container
// has ended.
func partOf(p *Policy, c *Container) string {
	if c == nil || !c.Alive() {
		return ""
	}
	return placement.PartOf(p.Placement, c.Assignment.CPUGroup)
}

// subjectOf returns the properties of a container that expressions can compare.
func subjectOf(p *Pod, c *Container) expression.Subject {
	return expression.Subject{Pod: p.Pod, QoS: p.Intent.QoS.String(), Name: c.Name}
}

// addToPart adds n to the count of a part of the node. It does nothing if part is "".
func (s *scopeCount) addToPart(part string, n int) {
	if part == "" {
		return
	}
	if s.byPart[part] += n; s.byPart[part] == 0 {
		delete(s.byPart, part)
	}
}

// indexContainer updates the index for a container; c is nil if the container was removed.
func (s *State) indexContainer(id string, c *Container) {
	if s.affinityIndex == nil {
		return
	}
	if part := partOf(&s.Policy, c); part != "" && s.pods[c.PodID] != nil {
		s.affinityIndex.Put(id, subjectOf(s.pods[c.PodID], c), part)
		return
	}
	s.affinityIndex.Remove(id)
}

// indexPods updates the index for the containers of pods that changed.
func (s *State) indexPods(pods map[string]*Pod) {
	for id := range pods {
		for _, container := range s.containerIDsByPod[id] {
			s.indexContainer(container, s.containers[container])
		}
	}
}

// countAll adds all containers of a state that the affinity matches.
func (s *scopeCount) countAll(in *State) {
	if in.affinityIndex != nil {
		in.affinityIndex.Count(s.byPart, s.affinity.Scope, s.affinity.Match)
		return
	}
	for _, c := range in.containers {
		s.countInState(in, c, 1)
	}
}

// scopeCounts returns the counts of an affinity in a view, by part of the node. Callers must not change the
// map.
func (n *view) scopeCounts(f *intent.Affinity) map[string]int {
	if k := n.affinityCounts[f.ID]; k != nil {
		return k.byPart
	}
	k := &scopeCount{affinity: f, byPart: map[string]int{}}
	if !n.ignoresBase {
		k.countAll(n.base)
	}
	if n.affinityCounts == nil {
		n.affinityCounts = map[string]*scopeCount{}
	}
	n.affinityCounts[f.ID] = k
	for id, c := range n.containers {
		if !n.ignoresBase {
			k.countInState(n.base, n.base.containers[id], -1)
		}
		k.countInView(n, c, 1)
	}
	return k.byPart
}

// recountScopes updates the counts of a view before put replaces, adds or (if c is nil) removes a container.
func (n *view) recountScopes(id string, c *Container) {
	for _, k := range n.affinityCounts {
		if was, changed := n.containers[id]; changed {
			k.countInView(n, was, -1)
		} else if !n.ignoresBase {
			k.countInState(n.base, n.base.containers[id], -1)
		}
		k.countInView(n, c, 1)
	}
}

// countInState adds sign to the count for a container of a state.
func (s *scopeCount) countInState(in *State, c *Container, sign int) {
	if c != nil {
		s.count(&in.Policy, in.pods[c.PodID], c, sign)
	}
}

// countInView adds sign to the count for a container of a view.
func (s *scopeCount) countInView(n *view, c *Container, sign int) {
	if c != nil {
		s.count(n.policy, n.pod(c.PodID), c, sign)
	}
}

// count adds sign to the count for a container. As in the index, a container without a pod does not count.
func (s *scopeCount) count(policy *Policy, p *Pod, c *Container, sign int) {
	if p != nil && c.Alive() && s.affinity.Matches(subjectOf(p, c)) {
		s.addToPart(partOf(policy, c), sign)
	}
}

// attraction returns the sums of the weights of the container's affinities, by the part of the node in which
// the matching containers are. A negative sum means that the container should be far from them.
func (s *placer) attraction() map[string]int {
	all := s.p.Intent.AffinitiesOf(s.c.Name)
	if len(all) == 0 {
		return nil
	}
	sum := map[string]int{}
	self := ""
	if was, changed := s.n.containers[s.c.ID]; changed {
		self = partOf(s.n.policy, was)
	} else if !s.n.ignoresBase {
		self = partOf(&s.n.base.Policy, s.n.base.containers[s.c.ID])
	}
	for i := range all {
		f := &all[i]
		if f.ID == "" {
			for _, other := range s.n.containersOf(s.c.PodID) {
				if part := partOf(s.n.policy, other); part != "" && other.ID != s.c.ID && f.Matches(subjectOf(s.p, other)) {
					sum[part] += f.Weight
				}
			}
			continue
		}
		for part, n := range s.n.scopeCounts(f) {
			sum[part] += n * f.Weight
		}
		if self != "" && f.Matches(subjectOf(s.p, s.c)) {
			sum[self] -= f.Weight
		}
	}
	return sum
}
