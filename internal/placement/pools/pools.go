// Package pools is the placement policy with which the agent chooses CPUs itself: for
// containers that ask to own CPUs, and for shared pools, which are as large as the requests of
// their containers.
package pools

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// Policy is placement.policy: pools.
type Policy struct {
	Tree *choose.Tree // of the machine
	// Sizing makes shared pools as large as their containers' requests; nil leaves them as
	// configured.
	Sizing *Sizing
	// Whole says which containers without a class own CPUs: those that request whole CPUs, with
	// equal request and limit.
	Whole WholeCPUs
	// Lend lets reclaimed containers use the CPUs of LSR pods.
	Lend bool
	// PreferEmptiest prefers the emptiest part of the machine with enough CPUs. Without it, the
	// policy prefers the fullest such part.
	PreferEmptiest bool
	// NearDevices prefers CPUs of the NUMA nodes of a container's devices.
	NearDevices bool
	// CoreKind is the preferred kind of cores for pods that request no kind; PlainCore for none.
	CoreKind topology.CoreKind
	// Isolated sets which owners prefer isolated CPUs (isolcpus), for pods that do not set it
	// themselves.
	Isolated IsolatedCPUs
}

// IsolatedCPUs says which containers prefer to own isolated CPUs.
type IsolatedCPUs int

// The choices. The kernel does not balance threads over isolated CPUs: a container with one
// thread has one for itself, but all threads of a larger container may run on the first CPU.
const (
	IsolatedSingle IsolatedCPUs = iota // only owners of one CPU
	IsolatedPreferred
	IsolatedAvoided
)

// WholeCPUs says in which pods containers without a class own CPUs.
type WholeCPUs int

// The choices.
const (
	WholeNowhere    WholeCPUs = iota
	WholeGuaranteed           // like the kubelet's static CPU manager
	WholeAnywhere             // also in Burstable pods
)

// Terms lets pods of class dedicated own CPUs, and containers of pods without a class that
// request whole CPUs.
func (p *Policy) Terms(_ *topology.Machine, s placement.Subject) placement.Terms {
	in := s.Intent
	t := placement.Terms{
		Chooses: true, NearDevices: p.NearDevices,
		Lent: p.Lend && in.Name == "LSR", ExclusiveNodes: in.NUMA.V.Exclusive && !in.CPUs.IsSet(),
	}
	switch {
	case in.Class.V == intent.Dedicated:
		t.Pays, t.Key = placement.Resources, in.Class.Key
	case in.Class.IsSet():
	case p.Whole != WholeNowhere && in.QoS == intent.Guaranteed, p.Whole == WholeAnywhere && in.QoS == intent.Burstable:
		t.Pays, t.Key = placement.WholeCPUs, "placement.wholeCPUs"
	}
	return t
}

// Layout divides the CPUs without an owner among the pools.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	if p.Sizing == nil {
		return pools.Lay(d)
	}
	return p.Sizing.lay(pools, d)
}

// Choose chooses CPUs that are close to each other, and close to what the pod asks for.
func (p *Policy) Choose(v placement.View, s placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	var cpus topology.Set
	var why []choose.Reason
	var err error
	switch {
	case !w.Have.Empty() && w.N > w.Held.Len():
		cpus, err = p.more(v, s, w)
	case !w.Have.Empty():
		cpus, err = p.fewer(s, w)
	case s.Intent.NUMA.IsSet():
		q := p.question(v, s, w.N, w.TakenOver)
		q.From = q.From.Union(w.TakenOver)
		cpus, why, err = p.bind(v, s, q, w.Memory)
	default:
		q := p.question(v, s, w.N, w.TakenOver)
		q.Memory, q.MemoryLeft = w.Memory.Bytes, w.Memory.Left
		cpus, why, err = p.among(q, w.TakenOver)
	}
	return placement.Assignment{CPUs: cpus, Why: words(why)}, err
}

// question builds the allocator request for n CPUs that a container of a pod could own.
func (p *Policy) question(v placement.View, s placement.Subject, n int, passed topology.Set) choose.Want {
	w := choose.Want{
		N: n, From: v.Free, PreferEmptiest: p.PreferEmptiest, Cores: cores(s.Intent), Preferences: p.preferences(v, s, n),
		Efficient: p.coreKind(s.Intent) == topology.EfficiencyCore, Shared: p.shared(v.Layout), Reserve: p.needed(v),
	}
	if !passed.Empty() {
		w.Preferences = slices.Insert(w.Preferences, 0, choose.Preference{Name: "CPUs that its pod already has", CPUs: passed})
	}
	return w
}

// cores returns how the threads of cores may be divided.
func cores(in *intent.Pod) choose.Cores {
	switch {
	case in.NUMA.V.WholeCores, in.Cores.V.Whole:
		return choose.WholeCores
	case in.Cores.V.PreferWhole:
		return choose.PreferWhole
	case in.Cores.V.Spread:
		return choose.SpreadThreads
	}
	return choose.AnyThread
}

// words formats reasons in one line.
func words(reasons []choose.Reason) string {
	if len(reasons) == 0 {
		return "the only possible choice"
	}
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

// among chooses CPUs, first CPUs that the pod has already. If these are not enough, it adds
// other CPUs near them.
func (p *Policy) among(w choose.Want, passed topology.Set) (topology.Set, []choose.Reason, error) {
	if n := passed.Len(); n > 0 && n < w.N {
		more := w
		more.N, more.UsedWith = w.N-n, passed
		if got, err := p.Tree.Choose(more); err == nil {
			return got.CPUs.Union(passed), got.Why, nil
		}
	}
	w.From = w.From.Union(passed)
	got, err := p.Tree.Choose(w)
	return got.CPUs, got.Why, err
}

// more chooses additional CPUs for an owner. An owner that is bound to NUMA nodes gets CPUs of
// these nodes, because its memory does not move.
func (p *Policy) more(v placement.View, s placement.Subject, w placement.CPURequest) (topology.Set, error) {
	q := p.question(v, s, w.N-w.Held.Len(), topology.Set{})
	q.UsedWith = w.Have
	if s.Intent.NUMA.IsSet() {
		q.From = q.From.And(v.Machine.Spread(topology.NodeLevel, w.Held))
	}
	if s.Intent.NUMA.V.Even {
		if v.Machine.Count(topology.NodeLevel, q.From) < v.Machine.Count(topology.NodeLevel, w.Held) {
			return w.Have, &choose.ShortError{Want: q.N, Have: q.From.Len(), What: "available, on fewer NUMA nodes than the containers that share them"}
		}
		q.Spread, q.Even = []topology.Level{topology.NodeLevel}, true
	}
	got, err := p.Tree.Choose(q)
	return w.Have.Union(got.CPUs), err
}

// fewer chooses the best part of an owner's CPUs.
func (p *Policy) fewer(s placement.Subject, w placement.CPURequest) (topology.Set, error) {
	q := choose.Want{N: w.N, From: w.Have}
	if !w.AnyCPUs {
		if q.Cores = cores(s.Intent); s.Intent.NUMA.V.Even {
			q.Spread, q.Even = []topology.Level{topology.NodeLevel}, true
		}
	}
	got, err := p.Tree.Choose(q)
	return got.CPUs, err
}
