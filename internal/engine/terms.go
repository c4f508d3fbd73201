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

// terms returns the terms of the placement policy for a pod: the conditions under which its containers own
// CPUs.
func (n *view) terms(p *Pod) placement.Terms {
	return n.policy.Placement.Terms(n.machine, placement.Subject{Intent: p.Intent, Pod: p.Pod})
}

// termsOf returns the terms of the placement policy for one container of a pod. requested is the runtime's
// request for the container, and claims are its resource claims.
func (n *view) termsOf(p *Pod, container string, requested *lifecycle.Resources, claims *lifecycle.ClaimGrant) placement.Terms {
	return n.policy.Placement.Terms(n.machine, placement.Subject{
		Intent: p.Intent, Pod: p.Pod, Name: container, Requested: requested, KubeletGrant: p.Granted.StaticGrantOf(container), Claims: claims,
	})
}

// termsNow returns the terms for the container by its current request.
func (s *placer) termsNow() placement.Terms {
	return s.n.termsOf(s.p, s.c.Name, &s.c.Pristine, s.c.Claims)
}

// podWithoutRequest is a pod that requests nothing. Functions use it to get those terms that do not depend on a pod.
var podWithoutRequest = Pod{Intent: &intent.Pod{}}

// KubeletDecidesCPUs reports whether the kubelet's static managers decide who owns CPUs.
func (p *Policy) KubeletDecidesCPUs() bool { return p.othersDecideCPUs() && !p.ClaimsDecideCPUs() }

// ClaimsDecideCPUs reports whether resource claims decide who owns CPUs.
func (p *Policy) ClaimsDecideCPUs() bool {
	return p.PlacementOn && p.Placement.Terms(nil, placement.Subject{Intent: podWithoutRequest.Intent}).ByClaims
}

// externalCPUSource returns, for messages, the name of the program or object that grants CPUs in place of the agent.
func (p *Policy) externalCPUSource() string {
	if p.ClaimsDecideCPUs() {
		return "resource claims"
	}
	return "the kubelet's static CPU manager"
}

// othersDecideCPUs reports whether another program decides who owns CPUs.
func (p *Policy) othersDecideCPUs() bool {
	return p.PlacementOn && p.Placement.Terms(nil, placement.Subject{Intent: podWithoutRequest.Intent}).NoGrantReason != nil
}

// UsesDeviceGrants reports whether the decision about a pod depends on the devices that the kubelet grants to the pod.
// This is so if the pod requests devices in an annotation, or if the agent chooses CPUs near devices. The parameter in
// is the pod's intent; nil if the intent was not read yet.
func (p *Policy) UsesDeviceGrants(pod *lifecycle.Pod, in *intent.Pod) bool {
	if intent.RequestsDevices(pod) {
		return true
	}
	switch t := p.Placement.Terms(nil, placement.Subject{Intent: podWithoutRequest.Intent}); {
	case !t.NearDevices || !p.PlacementOn || t.NoGrantReason != nil:
		return false
	case t.PoolsNearDevices:
		return true
	}
	if in == nil {
		in = p.Serving.Read(pod, nil, p.Dialects)
		p.adjustIntent(pod, nil, in, func(hook.Hook, *hook.Output) {})
	}
	return !in.CPUs.IsSet() && p.Placement.Terms(nil, placement.Subject{Intent: in}).CountBasis != placement.CountNone
}

// cpuRequest is a request for CPUs that the policy should choose.
type cpuRequest struct {
	count int    // the number of CPUs
	key   string // the annotation or configuration key that requested the CPUs
	// ownedTogether means that all containers of the pod own the same CPUs.
	ownedTogether bool
}

// choosesCPUsForWholePod reports whether all containers of a pod own the same CPUs, chosen by the policy.
func (n *view) choosesCPUsForWholePod(p *Pod) bool {
	return n.policy.PlacementOn && !p.Intent.CPUs.IsSet() && n.terms(p).CountBasis == placement.CountByResources && p.paidCPUs(p.Pod.Resources).Known()
}

// requestedCPUs returns a container's request for CPUs that the agent should choose and the container should own. r are
// the container's resources in the runtime's request. ok is false if the container requests no such CPUs.
func (n *view) requestedCPUs(p *Pod, container string, r *lifecycle.Resources) (a cpuRequest, ok bool) {
	if !n.policy.PlacementOn || p.Intent.CPUs.IsSet() {
		return a, false
	}
	switch t := n.termsOf(p, container, r, nil); {
	case t.CountBasis == placement.CountNone:
		return a, false
	case t.CountBasis == placement.CountWholePart:
		return cpuRequest{count: p.paidCPUs(r).CPUs, key: t.Key}, true
	case t.CountBasis == placement.CountWholeRequest:
		n := WholeCPUs(r)
		return cpuRequest{count: n, key: t.Key}, n > 0
	case p.paidCPUs(p.Pod.Resources).Known():
		return cpuRequest{count: p.paidCPUs(p.Pod.Resources).CPUs, key: t.Key, ownedTogether: true}, true
	default:
		return cpuRequest{count: p.paidCPUs(r).CPUs, key: t.Key}, true
	}
}

// WholeCPUs returns the number of CPUs that a container requests. It returns 0 if the CPU request differs from the CPU
// limit, or is no whole number of CPUs.
func WholeCPUs(r *lifecycle.Resources) int {
	shares, quota, period := r.CPU.Shares.V, r.CPU.Quota.V, int64(r.CPU.Period.Or(defaultPeriod))
	if shares == 0 || shares%sharesOfCPU != 0 || period <= 0 || quota != int64(shares/sharesOfCPU)*period {
		return 0
	}
	return int(shares / sharesOfCPU)
}

// chooseCPUs chooses the CPUs that the container should own. key is the annotation or configuration key that requests
// them; "" if the container should own none. why says how the CPUs were chosen. The error is a sentence for users.
func (s *placer) chooseCPUs() (cpus topology.Set, key, why string, err error) {
	a, ok := s.n.requestedCPUs(s.p, s.c.Name, &s.c.Pristine)
	if !ok || a.count == 0 && s.p.kindOf(s.c.Name) == lifecycle.Ephemeral { // an ephemeral container has no resources
		return cpus, "", "", nil
	}
	if g, owns := s.n.ledger.GrantOf(s.c.Key); owns {
		cpus = g.CPUs
		if s.resize != nil { // the container is created again, with a smaller request
			cpus = s.resizedCPUs(cpus)
		}
		return cpus, a.key, "chosen for an earlier attempt of the container", s.n.checkGrantable(s.p, s.c.Key, cpus)
	}
	if have := s.n.ledger.CPUsOfPod(s.p.Pod.UID); a.ownedTogether && !have.Empty() {
		if s.resize != nil {
			have = s.resizedCPUs(have)
		}
		return have, a.key, "the CPUs of its pod", s.n.checkGrantable(s.p, s.c.Key, have)
	}
	if err := s.n.terms(s.p).NoGrantReason; err != nil {
		return cpus, a.key, "", err
	}
	sum := s.p.Pod.Resources
	if a.ownedTogether {
		if now := s.n.podSum(s.p, s.c); s.p.paidCPUs(&now).CPUs > a.count { // the last resize of the pod's containers was refused
			a.count, sum = s.p.paidCPUs(&now).CPUs, &now
		}
	}
	if err := s.n.policy.Rules.CheckCPUs(s.p.Pod.Namespace, max(a.count, 1), s.p.payingResources(sum, &s.c.Pristine)); err != nil {
		return cpus, a.key, "", err
	}
	if a.count == 0 {
		return cpus, a.key, "", noCPUsReason(s.p, sum, &s.c.Pristine)
	}
	cpus, why, err = s.chooseNewCPUs(a.count)
	return cpus, a.key, "chosen: " + why, err
}

// assumedMemoryBytes is the number of bytes that the agent assumes for a container without a memory limit, so that
// it does not choose a NUMA node without free memory.
const assumedMemoryBytes = 1 << 20

// memoryDemand returns how much memory the container can use, and how much memory is free on each NUMA node. Nodes that
// another pod has exclusively, and nodes that are not DRAM, count as having no free memory. If all containers of the
// pod run on the same nodes, the memory limit of the whole pod counts.
func (s *placer) memoryDemand() placement.Memory {
	if len(s.n.machine.Nodes) < 2 {
		return placement.Memory{}
	}
	bytes := max(s.c.Pristine.Memory.Limit.V, assumedMemoryBytes)
	if sum := s.p.Pod.Resources; sum != nil && (s.p.Intent.Class.V != intent.Dedicated || s.n.choosesCPUsForWholePod(s.p)) {
		bytes = max(bytes, sum.Memory.Limit.V)
	}
	left := s.n.freeMemory(s.expectedMemoryUsers())
	usable, _ := s.memoryNodes()
	for i := range left {
		if n := &s.n.machine.Nodes[i]; n.Kind != topology.DRAM || !slices.Contains(usable, n.ID) {
			left[i] = 0
		}
	}
	return placement.Memory{Bytes: uint64(bytes), FreeByNode: left}
}

// placementView returns the view of the node for the placement policy. free are the CPUs from which the policy
// may choose CPUs that the pod does not own yet.
func (n *view) placementView(free topology.Set) placement.View {
	return placement.View{Machine: n.machine, Pools: &n.policy.Pools, Layout: n.layout(nil), FreeCPUs: free, PlacementOff: !n.policy.PlacementOn, CountMembers: balloonContainers{n}.countMembers}
}

// subject describes the container to the placement policy, which then chooses CPUs that the container should own.
func (s *placer) subject() placement.Subject {
	grants := []lifecycle.DeviceGrant{s.p.Granted.DevicesOf(s.c.Name)}
	if s.n.choosesCPUsForWholePod(s.p) && s.p.Granted != nil {
		grants = slices.Collect(maps.Values(s.p.Granted.Containers))
	}
	return placement.Subject{
		Intent: s.p.Intent, Name: s.c.Name, Requested: &s.c.Pristine, Devices: append(grants, s.c.RequestedDevices, s.knownDevices()), OwnedByPod: s.n.ledger.CPUsOfPod(s.p.Pod.UID),
		Pod: s.p.Pod, PoolName: s.c.Balloon, Neighbours: balloonContainers{s.n}.neighbours(s.c), AffinityWeights: s.attraction,
	}
}

// choosePool asks the placement policy for the pool of a container that owns no CPUs, or that shares CPUs in addition
// to the CPUs that it owns. runsOn has the CPUs on which a container without a record runs; it is empty for others.
func (s *placer) choosePool(isNew bool, runsOn topology.Set) placement.Assignment {
	who := placement.Subject{
		Intent: s.p.Intent, Requested: &s.c.Pristine, PodRequested: s.p.Pod.Resources, KubeletGrant: s.p.Granted.StaticGrantOf(s.c.Name),
		FirstPoolChoice: isNew, CurrentCPUs: runsOn, PoolNode: s.c.PoolNode, OwnedByContainer: s.c.Assignment.Owned,
		Pod: s.p.Pod, Name: s.c.Name, PoolName: s.c.Balloon, Neighbours: balloonContainers{s.n}.neighbours(s.c), AffinityWeights: s.attraction,
	}
	if isNew && s.n.lastLayout().CPUsByPart != nil || s.n.terms(s.p).PoolsNearDevices { // pools may get CPUs near the container's devices
		who.Devices = s.subject().Devices
	}
	var free topology.Set
	if isNew && s.p.Intent.NUMA.IsSet() {
		free, who.Memory = s.n.ownableCPUs(s.p), s.memoryDemand()
		who.Devices = s.subject().Devices
		for _, id := range slices.Concat(s.n.changeOrder, s.n.base.containerIDsByPod[s.c.PodID]) {
			if o := s.n.container(id); o != nil && o.Key.PodUID == s.c.Key.PodUID && o.PoolNode.Set {
				who.PodPoolNode = o.PoolNode
				break
			}
		}
	}
	return s.n.policy.Placement.Share(s.n.placementView(free), who)
}

// ownableCPUs returns the CPUs that a pod could own. These are CPUs in the pod's cgroup that no container owns, that
// are not reserved, and that neither the kubelet nor resource claims gave to a container of another pod.
func (n *view) ownableCPUs(p *Pod) topology.Set {
	free := n.policy.Pools.Online.Minus(n.policy.Pools.Reserved).Minus(n.ledger.OwnedCPUs())
	for _, g := range n.ledger.Reservations() {
		free = free.Minus(g.CPUs)
	}
	free = p.allowedOf(free)
	taken, _ := n.externallyOwned(p, free)
	return free.Minus(taken)
}
