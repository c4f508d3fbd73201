package engine

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// This file handles owned CPUs that their owner, a container, cannot use now, because the CPUs are offline or missing
// in the cgroup of the container's pod. The ledger reserves these CPUs for the owner.

// usableCPUs returns the CPUs that containers of a pod can use now: CPUs that are online and in the pod's cgroup.
// Cgroup v1 removes a CPU that goes offline from cgroups, and does not add it when it is online again.
func (n *view) usableCPUs(p *Pod) topology.Set {
	return p.allowedOf(n.machine.Online())
}

// ownedOrReserved returns the CPUs of a pod: the CPUs that its containers own, and the CPUs that are
// reserved for them.
func (n *view) ownedOrReserved(p *Pod) topology.Set {
	return n.ledger.CPUsOfPod(p.Pod.UID).Union(n.ledger.ReservedForPod(p.Pod.UID))
}

// unusableCPUs returns the CPUs that the container owns and cannot use now. If the container was created again and all
// containers of its pod own the same CPUs, the CPUs that are reserved for the pod's containers count as owned, too.
func (s *placer) unusableCPUs() topology.Set {
	own := s.c.Stamp.CPUs.Union(s.n.ledger.ReservedCPUs(s.c.Key))
	if s.c.Stamp.CPUs.Empty() && (s.p.Intent.CPUs.IsSet() || s.n.ownSameCPUs(s.p)) {
		own = own.Union(s.n.ledger.ReservedForPod(s.p.Pod.UID))
	}
	return own.Minus(s.n.usableCPUs(s.p))
}

// reserveUnusableOnCreate handles a container that is created again and can use none of the CPUs that it owned before.
// The container waits in a pool, and gets these CPUs when they are usable again. reserveUnusableOnCreate reports
// whether the container waits.
func (s *placer) reserveUnusableOnCreate() bool {
	unusable := s.unusableCPUs()
	if _, owns := s.n.ledger.GrantOf(s.c.Key); owns || !s.c.Stamp.CPUs.Empty() || unusable.Empty() || !s.n.ledger.CPUsOfPod(s.p.Pod.UID).Empty() {
		return false
	}
	s.c.Stamp.CPUs = unusable
	s.reserveUnusableCPUs(cmp.Or(s.p.Intent.CPUs.Key, s.p.Intent.Class.Key, intent.KoordResourceStatus))
	return true
}

// placeWaitingOwner places a container that waits in a pool because it could use none of the CPUs that it owns. If the
// ledger has a grant for the container's key now, the container gets the granted CPUs. placeWaitingOwner reports
// whether the container got CPUs.
func (s *placer) placeWaitingOwner() bool {
	if s.p.Intent.CPUs.IsSet() || s.c.Stamp.CPUs.Empty() || s.n.ledger.ReservedCPUs(s.c.Key).Empty() {
		return false
	}
	g, _ := s.n.ledger.GrantOf(s.c.Key)
	if s.resize != nil {
		g.CPUs = s.resizedCPUs(g.CPUs)
	}
	if g.CPUs.Empty() {
		return false
	}
	s.giveCPUs(g.CPUs, g.From, "the CPUs of its pod")
	return true
}

// reserveUnusableCPUs handles a container that owns CPUs but can currently use none of them. It reserves these CPUs for
// the container, and adds a problem. But if another pod has meanwhile become the owner of some of these CPUs, the
// container loses all of them.
func (s *placer) reserveUnusableCPUs(from string) {
	if s.n.ledger.Check(s.c.Key, s.c.Stamp.CPUs) != nil {
		s.c.Stamp.CPUs, s.c.Stamp.Stale = topology.Set{}, true
		return
	}
	s.n.reserveCPUs(s.p, s.c.Key, s.c.Stamp.CPUs, from)
	s.reportUnusable(from, s.c.Stamp.CPUs, "the container runs in a shared pool")
}

// reportUnusable adds problems for CPUs that the container owns and cannot use now. The parameter then is a clause that
// says on which CPUs the container runs instead.
func (s *placer) reportUnusable(key string, cpus topology.Set, then string) {
	for _, q := range []struct {
		cpus       topology.Set
		why, until string
	}{
		{cpus.Minus(s.n.machine.Online()), "the container owns these CPUs, but they are offline", "gets these CPUs again when they are online"},
		{
			cpus.And(s.n.machine.Online()), "the container owns these CPUs, but they are not in the cgroup of its pod: cgroup version 1 removes a CPU that goes offline from all cgroups permanently",
			"gets these CPUs again when they are written into cpuset.cpus of the cgroups above its container and the agent restarts",
		},
	} {
		if !q.cpus.Empty() {
			s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
				Key: key, Value: intent.Printable(s.n.machine.Format(q.cpus)), Warning: true, Reason: q.why, Then: then + " and " + q.until,
			})
		}
	}
}

// staysOnOwnCPUs reports whether the container can use some of the CPUs that it owned before, and the policy and other
// grants still let it own them. old is the earlier version of the container.
func (s *placer) staysOnOwnCPUs(old *Container) bool {
	left := s.n.ownedBy(old).And(s.n.usableCPUs(s.p))
	return !left.Empty() && s.n.checkGrantable(s.p, old.Key, left) == nil
}

// lowestCPUs returns the lowest n CPUs of a set.
func lowestCPUs(cpus topology.Set, n int) topology.Set {
	var out topology.Set
	for i := range cpus.All() {
		if out.Len() < n {
			out.Add(i)
		}
	}
	return out
}

// withReservedCPUs adds the CPUs that are reserved for a container to a set of CPUs.
func (s *placer) withReservedCPUs(have topology.Set) topology.Set {
	return have.Union(s.n.ledger.ReservedCPUs(s.c.Key))
}

// ownOrReserve divides the CPUs in all for the container with the given key. It grants those CPUs that the pod can use
// now, and reserves the others for the container. It does nothing if another pod owns some of the CPUs, or if some of
// the usable CPUs are in pools.reserved.
func (n *view) ownOrReserve(pod *Pod, key placement.Key, all topology.Set, from string) {
	cpus := all.And(n.usableCPUs(pod))
	if n.ledger.Check(key, all) != nil || !cpus.And(n.policy.Pools.Reserved).Empty() {
		return
	}
	if !cpus.Empty() {
		n.ledger.write(func(l *placement.Ledger) { l.Put(n.grantOf(pod, key, cpus, from)) })
	}
	n.reserveCPUs(pod, key, all.Minus(cpus), from)
}

// reserveCPUs reserves CPUs for the container with the key, so that containers of other pods cannot get them. The
// container owns the CPUs but cannot use them now.
func (n *view) reserveCPUs(p *Pod, key placement.Key, cpus topology.Set, from string) {
	if n.ledger.ReservedCPUs(key) != cpus {
		n.ledger.write(func(l *placement.Ledger) { l.Reserve(n.grantOf(p, key, cpus, from)) })
	}
}
