package topologyaware

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

// Options configure the policy. Each field has the name of a key of nri-plugins' TopologyAwarePolicy.
// NamespaceSchedulingClasses and PodQoSSchedulingClasses are lists here, and mappings in nri-plugins.
type Options struct {
	PinMemory                        bool
	PreferSharedCPUs                 bool
	PreferIsolatedCPUs               bool
	ColocatePods, ColocateNamespaces bool
	ReservedPoolNamespaces           []string
	UnlimitedBurstable               Level
	SchedulingClasses                class.SchedulingClasses
	NamespaceSchedulingClasses       []class.NamespaceOptions
	PodQoSSchedulingClasses          []class.QoSOptions
}

// Policy is the policy for placement.policy: topology-aware.
type Policy struct {
	options Options
	machine *topology.Machine
	tree    tree            // the parts of the node
	indexes partIndexes     // the indexes of the parts in tree, by the parts' names
	chooser *choose.Tree    // chooses CPUs that are close to each other
	cores   placement.Cores // the cores of the machine, with their threads
}

// New returns the policy for a machine.
func New(m *topology.Machine, o Options) *Policy {
	t := newTree(m)
	return &Policy{options: o, machine: m, tree: t, indexes: t.partIndexes(), chooser: choose.NewTree(m), cores: placement.CoresOf(m)}
}

// ConfigKey is the configuration section of the policy. Reasons and problems for users contain this key.
const ConfigKey = "placement.topologyAware"

// Terms lets containers of Guaranteed pods own CPUs, if they request at least one whole CPU. If the request also has a
// fraction of a CPU, the container can own the whole CPUs, and share CPUs for the fraction.
func (p *Policy) Terms(_ *topology.Machine, s placement.Subject) placement.Terms {
	t := placement.Terms{ChoosesCPUsOrMemory: true, NearDevices: true, KeepsRequestedMemory: !p.options.PinMemory || preservesMemory(s), Threads: threadsOf(s), Memory: memoryOf(s)}
	reserved, _ := p.wantsReserved(s)
	milli, rest := requestAndFraction(s.Requested)
	t.SharesFraction = s.Intent.QoS == intent.Guaranteed && rest > 0 && milli > milliOfCPU
	shares, key := p.wantsShared(s)
	t.Key = key // always set, because a container can still own CPUs from an earlier configuration
	switch {
	case s.Intent.QoS != intent.Guaranteed || shares || reserved || preservesCPU(s) != "":
	case !t.SharesFraction:
		t.CountBasis = placement.CountWholeRequest
	case milli < 2*milliOfCPU || key != ConfigKey: // for a request of 2 CPUs or more, an annotation must request own CPUs
		t.CountBasis = placement.CountWholePart
	}
	return t
}

// requestAndFraction returns the CPU request in milli-CPUs, and the fraction of a CPU in this request, also in
// milli-CPUs. Both are 0 if the request differs from the limit.
func requestAndFraction(r *lifecycle.Resources) (milli, rest int64) {
	if r == nil {
		return 0, 0
	}
	if milli = intent.LimitMilli(&r.CPU); milli == 0 || intent.SharesFromMilli(milli) != r.CPU.Shares.V {
		return 0, 0
	}
	return milli, milli % milliOfCPU
}

// PartOf returns the name of the part of the node in which the policy placed the container of CPU group g; "" if the
// container is in no part.
func (p *Policy) PartOf(g placement.CPUGroup) string {
	if i := p.partIndex(g.PoolID.Name, g.Owned); i >= 0 {
		return p.tree[i].name
	}
	return ""
}

// partIndex returns the index of a container's part. If the container owns CPUs, this is the smallest part that
// contains them. Otherwise it is the part with the given name, or -1 if no part has this name.
func (p *Policy) partIndex(name string, owned topology.Set) int {
	if !owned.Empty() {
		return p.tree.smallestAround(owned)
	}
	if i, known := p.indexes[name]; known {
		return i
	}
	return -1
}

// Layout computes for each part the CPUs that containers share. These are the CPUs of the part that no container owns
// and that are not reserved. Isolated CPUs are among them only if the node has no other CPUs to share.
func (p *Policy) Layout(pools *placement.Pools, d placement.Demand) *placement.Layout {
	l := pools.DefaultLayout(d)
	l.Policy, l.OneThread = p, p.cores.OneOfEach
	if b := d.Previous; b != nil && b.Policy == placement.Policy(p) && b.Pools == *pools && b.Demand.OwnedCPUs == d.OwnedCPUs {
		l.CPUsByPart = b.CPUsByPart // layouts can share the map, because nothing changes it later
		return l
	}
	l.CPUsByPart = make(map[placement.PoolID]topology.Set, len(p.tree))
	sharable := pools.Shared.Minus(pools.Reserved).Minus(d.OwnedCPUs)
	if plain := sharable.Minus(p.machine.IsolatedCPUs()); !plain.Empty() {
		sharable = plain
	}
	for _, part := range p.tree {
		l.CPUsByPart[placement.PoolID{Name: part.name}] = part.cpus.And(sharable)
	}
	return l
}

// Share places a container that shares CPUs in a part of the node. If the container also owns CPUs, it shares CPUs only
// for the rest of its request.
func (p *Policy) Share(v placement.View, s placement.Subject) (a placement.Assignment) {
	if v.PlacementOff {
		a.Why = "placement is off"
		return a
	}
	if a.From = preservesCPU(s); a.From != "" && s.OwnedByContainer.Empty() {
		a.Why, a.Memory.KeepRequested = "the container uses the CPUs of the runtime's request, because an annotation of its pod requires this", true
		return a
	}
	if reserved, key := p.wantsReserved(s); reserved && !v.Pools.Reserved.Empty() && s.OwnedByContainer.Empty() {
		a.From, a.Why, a.Memory = key, "the reserved CPUs", memoryOf(s)
		a.Group = placement.CPUGroup{Pool: placement.System, PoolID: placement.PoolID{Name: placement.ReservedPool}}
		return a
	}
	a.From, a.Memory = ConfigKey, memoryOf(s)
	at := p.partIndex(s.PoolName, topology.Set{})
	switch {
	case at >= 0:
		a.Why = "shares the CPUs of " + p.tree[at].name + ", where it was placed before"
	default:
		r := p.newRequest(v, s)
		if at = r.best(-1); !(candidate{r, at}).hasEnough() {
			a.Problems = append(a.Problems, lifecycle.Problem{
				Key: ConfigKey, Value: fmt.Sprintf("%dm", r.requestedMilli), Refused: true,
				Reason: "no part of the node has as much free CPU time as the container requests", Then: "the container shares the CPUs of " + p.tree[at].name,
			})
		}
		a.Why = r.why(at)
	}
	w := placement.PoolID{Name: p.tree[at].name}
	a.Group = placement.CPUGroup{Pool: placement.TreePool, PoolID: w, Threads: threadsOf(s)}
	if p.options.ColocateNamespaces && s.Pod != nil {
		a.Memberships = []placement.Membership{{Balloon: w.Name, Namespace: s.Pod.Namespace}}
	}
	return a
}

// errTooFewCPUs is the reason why a container cannot own CPUs.
var errTooFewCPUs = errors.New("in every part of the node, the requests of other containers leave too few CPUs")

// Choose chooses the CPUs of a container that owns CPUs: isolated CPUs, or CPUs in one part of the node. Of the parts
// that have enough CPUs, this is the best by the criteria of ownerCriteria.
func (p *Policy) Choose(v placement.View, s placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	if !w.UsableCPUs.Empty() && w.N <= w.OwnedCPUs.Len() {
		return placement.Assignment{CPUs: p.pick(w.N, w.UsableCPUs, w.UsableCPUs)}, nil
	}
	if key := requiresIsolated(s); key != "" {
		return p.chooseIsolated(v, w, key)
	}
	have, held := w.UsableCPUs, w.OwnedCPUs.Len() // a container that already owns CPUs keeps these CPUs
	if have.Empty() {                             // a new owner first gets CPUs that its pod already has
		have = p.pick(w.N, w.TakenOverCPUs, topology.Set{})
		held = have.Len()
	}
	if got := p.isolatedCPUs(v, s, w); held == 0 && !got.Empty() {
		return placement.Assignment{CPUs: got, Why: "isolated CPUs"}, nil
	}
	if held >= w.N {
		return placement.Assignment{CPUs: have, Why: "CPUs that its pod already has"}, nil
	}
	h := p.hintsOf(s)
	r := &ownerChoice{policy: p, cpuCount: w.N - held, currentCPUs: have, supply: p.supply(v.Layout), affinity: p.affinityOf(v, s), rank: ownerCriteria(&h)}
	if p.Terms(v.Machine, s).SharesFraction && s.PoolName == "" { // Share places the fraction later in the same part
		r.sharedMilli = max(intent.LimitMilli(&s.Requested.CPU)-int64(w.N)*milliOfCPU, 0)
	}
	p.countOwnable(r.supply, v.FreeCPUs)
	at := r.best(-1)
	if at < 0 {
		return placement.Assignment{CPUs: w.UsableCPUs}, errTooFewCPUs
	}
	from := p.tree[at].cpus.And(v.FreeCPUs) // a part without smaller parts in it can give all its free CPUs
	if len(p.tree[at].children) > 0 {
		from = p.spareCPUs(r.supply, at, v.FreeCPUs)
	}
	return placement.Assignment{CPUs: have.Union(p.pickNear(r.cpuCount, from, have, &h)), Why: r.why(at)}, nil
}

// chooseIsolated chooses the CPUs of a container that must own isolated CPUs. The parameter key is the annotation that
// requires this.
func (p *Policy) chooseIsolated(v placement.View, w placement.CPURequest, key string) (placement.Assignment, error) {
	have, held := w.UsableCPUs, w.OwnedCPUs.Len()
	if have.Empty() {
		have = p.pick(w.N, w.TakenOverCPUs.And(p.machine.IsolatedCPUs()), topology.Set{})
		held = have.Len()
	}
	free := v.FreeCPUs.And(p.machine.IsolatedCPUs()).Minus(have)
	if more := w.N - held; more > free.Len() {
		return placement.Assignment{CPUs: w.UsableCPUs}, &placement.RequirementError{Key: key, Reason: fmt.Sprintf("the container needs %d more isolated CPUs, and %d are free", more, free.Len())}
	}
	return placement.Assignment{CPUs: have.Union(p.pick(w.N-held, free, have)), Why: "isolated CPUs, which its pod requires"}, nil
}

// isolatedCPUs returns isolated CPUs for a new owner that prefers isolated CPUs, if enough are free; otherwise the
// empty set. An annotation decides whether the owner prefers isolated CPUs. Without an annotation, the owner of a
// single CPU prefers isolated CPUs if preferIsolatedCPUs is set, and other owners do not.
func (p *Policy) isolatedCPUs(v placement.View, s placement.Subject, w placement.CPURequest) topology.Set {
	prefers := p.options.PreferIsolatedCPUs && w.N == 1
	if asked := s.Intent.PreferIsolated.V.Of(s.Name); asked.IsSet() {
		prefers = asked.V
	}
	free := v.FreeCPUs.And(p.machine.IsolatedCPUs())
	if !prefers || !w.UsableCPUs.Empty() || free.Len() < w.N {
		return topology.Set{}
	}
	return p.pick(w.N, free, topology.Set{})
}

// pick chooses n CPUs from the set from. The chosen CPUs are close to each other and to the CPUs in near.
func (p *Policy) pick(n int, from, near topology.Set) topology.Set {
	return p.pickNear(n, from, near, &hints{})
}

// pickNear chooses n CPUs from the set from. As many of them as possible are near the devices of h. The chosen CPUs are
// close to each other and to the CPUs in near.
func (p *Policy) pickNear(n int, from, near topology.Set, h *hints) topology.Set {
	if n <= 0 || from.Empty() {
		return topology.Set{}
	}
	got, err := p.chooser.Choose(choose.Request{N: min(n, from.Len()), From: from, UsedWith: near, Preferences: h.preference()})
	if err != nil { // impossible: from has enough CPUs, and every thread is acceptable
		return topology.Set{}
	}
	return got.CPUs
}
