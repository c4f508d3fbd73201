package engine

import (
	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
)

// An affinity is a container's request to run near other containers, or far from them. This file counts, for each part
// of the node, the live containers that an affinity matches. Only affinities with a scope need these counts, because
// only they can match containers of other pods. The counts come from an index, so that the creation of a container need
// not visit all containers.

// scopeCount has, for each part of the node, the number of live containers that an affinity matches. A part is, for
// example, a socket or a NUMA node (policy topology-aware).
type scopeCount struct {
	affinity *intent.Affinity
	byPart   map[string]int
}

// partOf returns the part of the node in which the placement policy placed a container. It returns "" if the policy
// does not divide the node into parts, or if the container has ended.
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

// addToPart adds n to the count of a part of the node. If part is "", it does nothing.
func (s *scopeCount) addToPart(part string, n int) {
	if part == "" {
		return
	}
	if s.byPart[part] += n; s.byPart[part] == 0 {
		delete(s.byPart, part)
	}
}

// indexContainer updates the entry of a container in s.affinityIndex, which finds the containers that an affinity
// matches. If the container was removed, c is nil.
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

// indexPods updates the entries in s.affinityIndex of all containers of the given pods, which changed.
func (s *State) indexPods(pods map[string]*Pod) {
	for id := range pods {
		for _, container := range s.containerIDsByPod[id] {
			s.indexContainer(container, s.containers[container])
		}
	}
}

// countAll adds all containers that the affinity matches to the counts. The containers are those of the state in.
func (s *scopeCount) countAll(in *State) {
	if in.affinityIndex != nil {
		in.affinityIndex.Count(s.byPart, s.affinity.Scope, s.affinity.Match)
		return
	}
	for _, c := range in.containers {
		s.countInState(in, c, 1)
	}
}

// scopeCounts returns, for each part of the node, how many of the view's containers match the affinity f. Callers must
// not change the map.
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

// recountScopes updates the counts of all affinities when a container of the view changes; c is the new container, or
// nil if the container is removed. The method view.put calls recountScopes before it changes the view.
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

// countInState adds sign (1 or -1) to the count if the affinity matches a container of a state.
func (s *scopeCount) countInState(in *State, c *Container, sign int) {
	if c != nil {
		s.count(&in.Policy, in.pods[c.PodID], c, sign)
	}
}

// countInView adds sign (1 or -1) to the count if the affinity matches a container of a view.
func (s *scopeCount) countInView(n *view, c *Container, sign int) {
	if c != nil {
		s.count(n.policy, n.pod(c.PodID), c, sign)
	}
}

// count adds sign (1 or -1) to the count of the container's part of the node, if the affinity matches the container. A
// container whose pod is not known does not count, because the index that countAll uses does not have such containers
// either.
func (s *scopeCount) count(policy *Policy, p *Pod, c *Container, sign int) {
	if p != nil && c.Alive() && s.affinity.Matches(subjectOf(p, c)) {
		s.addToPart(partOf(policy, c), sign)
	}
}

// attraction returns, for each part of the node, a sum over the container's affinities: the weight of the affinity
// times the number of other containers in the part that the affinity matches. A negative sum means that the container
// should not be in that part.
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
		if f.ID == "" { // the affinity has no scope, so it matches only containers of the same pod
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
