package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// terms returns the policy's terms on which containers of a pod own CPUs.
func (n *view) terms(p *Pod) placement.Terms {
	return n.policy.Placement.Terms(n.machine, placement.Subject{Intent: p.Intent, Pod: p.Pod})
}

// termsOf returns the terms for one container of the pod, with the kubelet's grant to it.
// requested is the runtime's request.
func (n *view) termsOf(p *Pod, container string, requested *lifecycle.Resources) placement.Terms {
	return n.policy.Placement.Terms(n.machine, placement.Subject{
		Intent: p.Intent, Pod: p.Pod, Name: container, Requested: requested, KubeletGrant: p.Granted.StaticOf(container),
	})
}

// noRequest is a pod that asks for nothing.
var noRequest = Pod{Intent: &intent.Pod{}}

// KubeletGives reports whether the kubelet's static managers decide who owns CPUs.
func (p *Policy) KubeletGives() bool {
	return p.Place && p.Placement.Terms(nil, placement.Subject{Intent: noRequest.Intent}).DecidedElsewhere != nil
}

// GrantsMatter reports whether a pod's decision depends on the kubelet's device grants, because
// the pod requests devices or because the agent chooses CPUs near its devices. in is the pod's
// intent, nil if it was not read yet.
func (p *Policy) GrantsMatter(pod *lifecycle.Pod, in *intent.Pod) bool {
	if intent.AsksDevices(pod) {
		return true
	}
	if t := p.Placement.Terms(nil, placement.Subject{Intent: noRequest.Intent}); !t.NearDevices || !p.Place || t.DecidedElsewhere != nil {
		return false
	}
	if in == nil {
		in = p.Serving.Read(pod, nil, p.Dialects)
		p.wish(pod, nil, in, func(hook.Hook, *hook.Output) {})
	}
	return !in.CPUs.IsSet() && p.Placement.Terms(nil, placement.Subject{Intent: in}).Pays != placement.Nothing
}

// ask is a request for CPUs that the policy should choose.
type ask struct {
	n   int
	key string // the key that asked for it
	// pod: the CPUs are for all containers of the pod.
	pod bool
}

// chosenForPod reports whether all containers of a pod own the same CPUs, chosen by the policy.
func (n *view) chosenForPod(p *Pod) bool {
	return n.policy.Place && !p.Intent.CPUs.IsSet() && n.terms(p).Pays == placement.Resources && p.paidCPUs(p.Pod.Resources).Known()
}

// asks returns a container's request for CPUs, from the resources in the runtime's request; ok
// is false if the container requests no CPUs of its own.
func (n *view) asks(p *Pod, container string, r *lifecycle.Resources) (a ask, ok bool) {
	if !n.policy.Place || p.Intent.CPUs.IsSet() {
		return a, false
	}
	switch t := n.termsOf(p, container, r); {
	case t.Pays == placement.Nothing:
		return a, false
	case t.Pays == placement.WholeCPUs:
		n := WholeCPUs(r)
		return ask{n: n, key: t.Key}, n > 0
	case p.paidCPUs(p.Pod.Resources).Known():
		return ask{n: p.paidCPUs(p.Pod.Resources).CPUs, key: t.Key, pod: true}, true
	default:
		return ask{n: p.paidCPUs(r).CPUs, key: t.Key}, true
	}
}

// WholeCPUs returns the number of CPUs that a container requests, if request and limit are
// equal and a whole number; otherwise 0.
func WholeCPUs(r *lifecycle.Resources) int {
	shares, quota, period := r.CPU.Shares.V, r.CPU.Quota.V, int64(r.CPU.Period.Or(defaultPeriod))
	if shares == 0 || shares%sharesOfCPU != 0 || period <= 0 || quota != int64(shares/sharesOfCPU)*period {
		return 0
	}
	return int(shares / sharesOfCPU)
}

// choose chooses the CPUs that a container should own. The error is a sentence for users. why
// lists the criteria that decided.
func (s *placer) choose() (cpus topology.Set, key, why string, err error) {
	a, ok := s.n.asks(s.p, s.c.Name, &s.c.Pristine)
	if !ok || a.n == 0 && s.p.kindOf(s.c.Name) == lifecycle.Ephemeral { // an ephemeral container has no resources
		return cpus, "", "", nil
	}
	if g, owns := s.n.ledger.Of(s.c.Key); owns {
		cpus = g.CPUs
		if s.resize != nil { // created again with a smaller request
			cpus = s.resized(cpus)
		}
		return cpus, a.key, "chosen before", s.n.grantable(s.p, s.c.Key, cpus)
	}
	if have := s.n.ledger.OfPod(s.p.Pod.UID); a.pod && !have.Empty() {
		if s.resize != nil {
			have = s.resized(have)
		}
		return have, a.key, "those of its pod", s.n.grantable(s.p, s.c.Key, have)
	}
	if err := s.n.terms(s.p).DecidedElsewhere; err != nil {
		return cpus, a.key, "", err
	}
	sum := s.p.Pod.Resources
	if a.pod {
		if now := s.n.podSum(s.p, s.c); s.p.paidCPUs(&now).CPUs > a.n { // its last resize was refused
			a.n, sum = s.p.paidCPUs(&now).CPUs, &now
		}
	}
	if err := s.n.policy.Rules.CPUs(s.p.Pod.Namespace, max(a.n, 1), s.p.payingResources(sum, &s.c.Pristine)); err != nil {
		return cpus, a.key, "", err
	}
	if a.n == 0 {
		return cpus, a.key, "", whyNoCPUs(s.p, sum, &s.c.Pristine)
	}
	cpus, why, err = s.chooseNew(a.n)
	return cpus, a.key, "chosen: " + why, err
}

// leastMemory is the number of bytes that the agent assumes for a container without a memory
// limit. So it does not place the container on a NUMA node without free memory.
const leastMemory = 1 << 20

// memory returns how much memory a container may use if its memory nodes follow from its CPUs,
// and how much is free on each node that no other pod has exclusively. If all containers of the
// pod run on the same nodes, the limit of the whole pod counts.
func (s *placer) memory() placement.Memory {
	if len(s.n.machine.Nodes) < 2 {
		return placement.Memory{}
	}
	bytes := max(s.c.Pristine.Memory.Limit.V, leastMemory)
	if sum := s.p.Pod.Resources; sum != nil && (s.p.Intent.Class.V != intent.Dedicated || s.n.chosenForPod(s.p)) {
		bytes = max(bytes, sum.Memory.Limit.V)
	}
	left := s.n.freeMemory(s.expectedMemory())
	usable, _ := s.memoryNodes()
	for i := range left {
		if n := &s.n.machine.Nodes[i]; n.Kind != topology.DRAM || !slices.Contains(usable, n.ID) {
			left[i] = 0
		}
	}
	return placement.Memory{Bytes: uint64(bytes), Left: left}
}

// placementView returns the node as the policy sees it.
func (n *view) placementView(free topology.Set) placement.View {
	return placement.View{Machine: n.machine, Pools: &n.policy.Pools, Layout: n.layout(nil), Free: free, PlacementOff: !n.policy.Place, InBalloon: balloonContainers{n}.marked}
}

// subject returns the container that should own CPUs, as the policy sees it.
func (s *placer) subject() placement.Subject {
	grants := []lifecycle.DeviceGrant{s.p.Granted.Of(s.c.Name)}
	if s.n.chosenForPod(s.p) && s.p.Granted != nil {
		grants = slices.Collect(maps.Values(s.p.Granted.Containers))
	}
	return placement.Subject{
		Intent: s.p.Intent, Name: s.c.Name, Requested: &s.c.Pristine, Devices: append(grants, s.c.RequestedDevices), Owned: s.n.ledger.OfPod(s.p.Pod.UID),
		Neighbours: balloonContainers{s.n}.neighbours(s.c),
	}
}

// choosePool asks the policy for the pool of a container that owns nothing.
func (s *placer) choosePool(isNew bool, runsOn topology.Set) placement.Assignment {
	who := placement.Subject{
		Intent: s.p.Intent, Requested: &s.c.Pristine, PodRequested: s.p.Pod.Resources, KubeletGrant: s.p.Granted.StaticOf(s.c.Name),
		New: isNew, RunsOn: runsOn, PoolNode: s.c.PoolNode,
		Pod: s.p.Pod, Name: s.c.Name, Balloon: s.c.Balloon, Neighbours: balloonContainers{s.n}.neighbours(s.c),
	}
	var free topology.Set
	if isNew && s.p.Intent.NUMA.IsSet() {
		free, who.Memory = s.n.ownable(s.p), s.memory()
		who.Devices = s.subject().Devices
		for _, id := range slices.Concat(s.n.order, s.n.base.byPod[s.c.PodID]) {
			if o := s.n.container(id); o != nil && o.Key.PodUID == s.c.Key.PodUID && o.PoolNode.Set {
				who.PodPoolNode = o.PoolNode
				break
			}
		}
	}
	return s.n.policy.Placement.Share(s.n.placementView(free), who)
}

// ownable returns the CPUs that a pod could own: CPUs that have no owner, are not reserved, and
// that the kubelet did not grant to a container.
func (n *view) ownable(p *Pod) topology.Set {
	free := n.policy.Pools.Online.Minus(n.policy.Pools.Reserved).Minus(n.ledger.Exclusive())
	for _, g := range n.ledger.AllReserved() {
		free = free.Minus(g.CPUs)
	}
	free = p.allowedOf(free)
	taken, _ := n.kubeletOwned(p, free)
	return free.Minus(taken)
}
