// Package pools is the placement policy with which the agent chooses CPUs itself. It chooses CPUs for
// containers that request CPUs of their own. It also sizes shared pools by the requests of their containers.
package pools

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is the policy for placement.policy: pools.
type Policy struct {
	Tree *choose.Tree // chooses among the machine's CPUs
	// Sizing makes shared pools as large as the requests of their containers. If it is nil, pools have their
	// configured CPUs.
	Sizing *Sizing
	// WholeCPUs says for which QoS classes of pods a container owns CPUs without a request for class dedicated. Such a
	// container must request a whole number of CPUs, with a limit equal to the request.
	WholeCPUs WholeCPUs
	// LendLSR means that reclaimed containers may use the CPUs that pods of Koordinator's QoS class LSR own.
	LendLSR bool
	// PreferEmptiest prefers the emptiest part of the machine with enough CPUs. If it is false, the policy
	// prefers the fullest part with enough CPUs.
	PreferEmptiest bool
	// NearDevices prefers CPUs on the NUMA nodes of a container's devices.
	NearDevices bool
	// CoreKind is the preferred kind of cores for pods that request no kind; PlainCore means no preference.
	CoreKind topology.CoreKind
	// Isolated says which owners prefer isolated CPUs (isolcpus). A request of the pod overrides it.
	Isolated IsolatedCPUs
}

// IsolatedCPUs says which containers prefer to own isolated CPUs.
type IsolatedCPUs int

// The values of IsolatedCPUs. The kernel does not balance threads over isolated CPUs. Isolated CPUs are therefore good
// for a container with one thread. But if a container with several threads owns several isolated CPUs, possibly all
// threads run on the first of them.
const (
	IsolatedSingle    IsolatedCPUs = iota // only owners of one CPU prefer isolated CPUs
	IsolatedPreferred                     // all owners prefer isolated CPUs
	IsolatedAvoided                       // all owners prefer other CPUs
)

// WholeCPUs says for which QoS classes of pods a container without a class owns CPUs. The container must request a
// whole number of CPUs.
type WholeCPUs int

// The values of WholeCPUs.
const (
	WholeNowhere    WholeCPUs = iota
	WholeGuaranteed           // in Guaranteed pods, as with the kubelet's static CPU manager
	WholeAnywhere             // in Guaranteed and Burstable pods
)

// Terms returns the terms of the policy for a container: above all, whether the container owns CPUs. A container of
// class dedicated does. A container without a class does if it requests a whole number of CPUs, and p.WholeCPUs allows
// this for the QoS class of its pod.
func (p *Policy) Terms(_ *topology.Machine, s placement.Subject) placement.Terms {
	in := s.Intent
	t := placement.Terms{
		ChoosesCPUsOrMemory: true, NearDevices: p.NearDevices,
		Lent: p.LendLSR && in.ClassName == "LSR", ExclusiveNodes: in.NUMA.V.Exclusive && !in.CPUs.IsSet(),
	}
	switch {
	case in.Class.V == intent.Dedicated:
		t.CountBasis, t.Key = placement.CountByResources, in.Class.Key
	case in.Class.IsSet():
	case p.WholeCPUs != WholeNowhere && in.QoS == intent.Guaranteed, p.WholeCPUs == WholeAnywhere && in.QoS == intent.Burstable:
		t.CountBasis, t.Key = placement.CountWholeRequest, "placement.wholeCPUs"
	}
	return t
}

// Layout divides the CPUs without an owner among the pools.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	if p.Sizing == nil {
		return pools.DefaultLayout(d)
	}
	return p.Sizing.layout(pools, d)
}

// Choose chooses CPUs that are close to each other and that meet the pod's requests and preferences.
func (p *Policy) Choose(v placement.View, s placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	var cpus topology.Set
	var why []choose.Reason
	var err error
	switch {
	case !w.UsableCPUs.Empty() && w.N > w.OwnedCPUs.Len():
		cpus, err = p.chooseMore(v, s, w)
	case !w.UsableCPUs.Empty():
		cpus, err = p.chooseFewer(s, w)
	case s.Intent.NUMA.IsSet():
		q := p.requestFor(v, s, w.N, w.TakenOverCPUs)
		q.From = q.From.Union(w.TakenOverCPUs)
		cpus, why, err = p.chooseNodesAndCPUs(v, s, q, w.Memory)
	default:
		q := p.requestFor(v, s, w.N, w.TakenOverCPUs)
		q.Memory, q.FreeMemory = w.Memory.Bytes, w.Memory.FreeByNode
		cpus, why, err = p.chooseAmong(q, w.TakenOverCPUs)
	}
	return placement.Assignment{CPUs: cpus, Why: formatReasons(why)}, err
}

// requestFor returns the request to the allocator, p.Tree, for n CPUs that a container should own. The parameter
// podCPUs has the CPUs that the container's pod already has; the allocator prefers them.
func (p *Policy) requestFor(v placement.View, s placement.Subject, n int, podCPUs topology.Set) choose.Request {
	w := choose.Request{
		N: n, From: v.FreeCPUs, PreferEmptiest: p.PreferEmptiest, Cores: coreUse(s.Intent), Preferences: p.preferences(v, s, n),
		Efficient: p.coreKind(s.Intent) == topology.EfficiencyCore, Shared: p.sharedOnly(v.Layout), Reserve: p.nodeNeeds(v),
	}
	if !podCPUs.Empty() {
		w.Preferences = slices.Insert(w.Preferences, 0, choose.Preference{Name: "CPUs that its pod already has", CPUs: podCPUs})
	}
	return w
}

// coreUse returns how the allocator uses the threads of a core for a pod: only whole cores, whole cores if possible,
// threads of as many cores as possible, or any threads.
func coreUse(in *intent.Pod) choose.CoreUse {
	switch {
	case in.NUMA.V.WholeCores, in.Cores.V.WholeCores:
		return choose.WholeCores
	case in.Cores.V.PreferWholeCores:
		return choose.PreferWhole
	case in.Cores.V.SpreadCores:
		return choose.SpreadThreads
	}
	return choose.AnyThread
}

// formatReasons formats reasons in one line.
func formatReasons(reasons []choose.Reason) string {
	if len(reasons) == 0 {
		return "the only possible choice"
	}
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

// chooseAmong chooses the CPUs for w. podCPUs are CPUs that the pod already has. If there are fewer podCPUs than
// requested, chooseAmong takes all of them, and adds other CPUs near them.
func (p *Policy) chooseAmong(w choose.Request, podCPUs topology.Set) (topology.Set, []choose.Reason, error) {
	if n := podCPUs.Len(); n > 0 && n < w.N {
		more := w
		more.N, more.UsedWith = w.N-n, podCPUs
		if got, err := p.Tree.Choose(more); err == nil {
			return got.CPUs.Union(podCPUs), got.Why, nil
		}
	}
	w.From = w.From.Union(podCPUs)
	got, err := p.Tree.Choose(w)
	return got.CPUs, got.Why, err
}

// chooseMore chooses additional CPUs for an owner, and returns them together with the CPUs that the owner can use
// already. An owner that is bound to NUMA nodes gets CPUs of these nodes, because its memory stays on them.
func (p *Policy) chooseMore(v placement.View, s placement.Subject, w placement.CPURequest) (topology.Set, error) {
	q := p.requestFor(v, s, w.N-w.OwnedCPUs.Len(), topology.Set{})
	q.UsedWith = w.UsableCPUs
	if s.Intent.NUMA.IsSet() {
		q.From = q.From.And(v.Machine.ExpandToGroups(topology.NodeLevel, w.OwnedCPUs))
	}
	if s.Intent.NUMA.V.Even {
		if v.Machine.CountGroups(topology.NodeLevel, q.From) < v.Machine.CountGroups(topology.NodeLevel, w.OwnedCPUs) {
			return w.UsableCPUs, &choose.TooFewCPUsError{Want: q.N, Available: q.From.Len(), What: "available, on fewer NUMA nodes than the container uses"}
		}
		q.Spread, q.Even = []topology.Level{topology.NodeLevel}, true
	}
	got, err := p.Tree.Choose(q)
	return w.UsableCPUs.Union(got.CPUs), err
}

// chooseFewer chooses which CPUs an owner keeps, if it should have fewer CPUs than now.
func (p *Policy) chooseFewer(s placement.Subject, w placement.CPURequest) (topology.Set, error) {
	q := choose.Request{N: w.N, From: w.UsableCPUs}
	if !w.AnyCPUs {
		if q.Cores = coreUse(s.Intent); s.Intent.NUMA.V.Even {
			q.Spread, q.Even = []topology.Level{topology.NodeLevel}, true
		}
	}
	got, err := p.Tree.Choose(q)
	return got.CPUs, err
}
