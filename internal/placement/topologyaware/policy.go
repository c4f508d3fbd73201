package topologyaware

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options configure the policy. Each is the key of this name of nri-plugins'
// TopologyAwarePolicy.
type Options struct {
	PinMemory                        bool
	PreferSharedCPUs                 bool
	PreferIsolatedCPUs               bool
	ColocatePods, ColocateNamespaces bool
	ReservedPoolNamespaces           []string
	UnlimitedBurstable               Level
}

// Policy is placement.policy: topology-aware.
type Policy struct {
	o       Options
	machine *topology.Machine
	tree    tree
	cpus    *choose.Tree
	cores   placement.Cores
}

// New returns the policy for a machine.
func New(m *topology.Machine, o Options) *Policy {
	return &Policy{o: o, machine: m, tree: newTree(m), cpus: choose.NewTree(m), cores: placement.CoresOf(m)}
}

// Key is the key of the configuration that explains the policy's decisions.
const Key = "placement.topologyAware"

// Terms lets containers of Guaranteed pods own CPUs, if they request whole CPUs.
func (p *Policy) Terms(_ *topology.Machine, s placement.Subject) placement.Terms {
	t := placement.Terms{Chooses: true, KeepsMemory: !p.o.PinMemory || preservesMemory(s), Threads: threadsOf(s), Memory: memoryOf(s)}
	reserved, _ := p.reserved(s)
	if shares, key := p.shares(s); s.Intent.QoS == intent.Guaranteed && !shares && !reserved && preservesCPU(s) == "" {
		t.Pays, t.Key = placement.WholeCPUs, key
	}
	return t
}

// Layout gives every part its CPUs without those that containers own.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	l := pools.Lay(d)
	l.By, l.OneThread = p, p.cores.OneOfEach
	if b := d.Before; b != nil && b.By == placement.Policy(p) && b.Pools == *pools && b.Demand.Owned == d.Owned {
		l.Tree = b.Tree // it is never changed
		return l
	}
	l.Tree = make(map[placement.Which]topology.Set, len(p.tree))
	sharable := pools.Shared.Minus(pools.Reserved).Minus(d.Owned)
	if plain := sharable.Minus(p.machine.Isolated()); !plain.Empty() {
		sharable = plain
	}
	for _, part := range p.tree {
		l.Tree[placement.Which{Name: part.name}] = part.cpus.And(sharable)
	}
	return l
}

// Share puts a container that owns no CPUs into a part of the node.
func (p *Policy) Share(v placement.View, s placement.Subject) (a placement.Assignment) {
	if v.PlacementOff {
		a.Why = "placement is off"
		return a
	}
	if a.From = preservesCPU(s); a.From != "" {
		a.Why, a.Memory.Keep = "no part of the node takes it, so its CPUs are as requested", true
		return a
	}
	if reserved, key := p.reserved(s); reserved && !v.Pools.Reserved.Empty() {
		a.From, a.Why, a.Memory = key, "the reserved CPUs", memoryOf(s)
		a.Group = placement.CPUGroup{Pool: placement.System, Which: placement.Which{Name: placement.ReservedPool}}
		return a
	}
	a.From, a.Memory = Key, memoryOf(s)
	at := p.tree.named(s.Balloon)
	switch {
	case at >= 0:
		a.Why = "shares the CPUs of " + p.tree[at].name + ", where it was placed before"
	default:
		r := p.request(v, s)
		if at = r.best(-1); !(candidate{r, at}).enough() {
			a.Problems = append(a.Problems, lifecycle.Problem{
				Key: Key, Value: fmt.Sprintf("%dm", r.milli), Refused: true,
				Reason: "no part of the node has that much free CPU time", Then: "it shares the CPUs of " + p.tree[at].name,
			})
		}
		a.Why = r.why(at)
	}
	w := placement.Which{Name: p.tree[at].name}
	a.Group = placement.CPUGroup{Pool: placement.TreePool, Which: w, Threads: threadsOf(s)}
	if p.o.ColocateNamespaces && s.Pod != nil {
		a.Marks = []placement.Mark{{Balloon: w.Name, Namespace: s.Pod.Namespace}}
	}
	return a
}

// errShort is why a container cannot own CPUs.
var errShort = errors.New("no part of the node can give away that many CPUs in addition to the requests of its other containers")

// Choose chooses the CPUs of an owner: in the smallest part that has enough of them.
func (p *Policy) Choose(v placement.View, s placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	if !w.Have.Empty() && w.N <= w.Held.Len() {
		return placement.Assignment{CPUs: p.pick(w.N, w.Have, w.Have)}, nil
	}
	have, held := w.Have, w.Held.Len() // an owner keeps what it has
	if have.Empty() {                  // a new one gets what its pod has already
		have = p.pick(w.N, w.TakenOver, topology.Set{})
		held = have.Len()
	}
	if got := p.isolated(v, s, w); held == 0 && !got.Empty() {
		return placement.Assignment{CPUs: got, Why: "isolated CPUs"}, nil
	}
	if held >= w.N {
		return placement.Assignment{CPUs: have, Why: "CPUs its pod has already"}, nil
	}
	r := owning{p: p, n: w.N - held, near: have, supply: p.supply(v.Layout), affinity: p.affinityOf(s)}
	p.countOwnable(r.supply, v.Free)
	at := r.best()
	if at < 0 {
		return placement.Assignment{CPUs: w.Have}, errShort
	}
	from := p.tree[at].cpus.And(v.Free) // a leaf can choose among all its CPUs
	if len(p.tree[at].children) > 0 {
		from = p.spare(r.supply, at, v.Free)
	}
	why := fmt.Sprintf("%s is the smallest part of the node with enough CPUs to give away (%d)", p.tree[at].name, r.supply[at].ownable)
	return placement.Assignment{CPUs: have.Union(p.pick(r.n, from, have)), Why: why}, nil
}

// isolated returns isolated CPUs for a new owner, if there are enough: for one of a single CPU, and
// for any that asks for them.
func (p *Policy) isolated(v placement.View, s placement.Subject, w placement.CPURequest) topology.Set {
	prefers := p.o.PreferIsolatedCPUs && w.N == 1
	if asked := s.Intent.PreferIsolated.V.Of(s.Name); asked.IsSet() {
		prefers = asked.V
	}
	free := v.Free.And(p.machine.Isolated())
	if !prefers || !w.Have.Empty() || free.Len() < w.N {
		return topology.Set{}
	}
	return p.pick(w.N, free, topology.Set{})
}

// pick chooses n CPUs that are close to each other and to others.
func (p *Policy) pick(n int, from, near topology.Set) topology.Set {
	if n <= 0 || from.Empty() {
		return topology.Set{}
	}
	got, err := p.cpus.Choose(choose.Want{N: min(n, from.Len()), From: from, UsedWith: near})
	if err != nil { // there are as many, and any thread will do
		return topology.Set{}
	}
	return got.CPUs
}
