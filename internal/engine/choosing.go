package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// Choosing says how the agent chooses CPUs by itself.
type Choosing struct {
	Tree *choose.Tree // of the machine
	// Whole says which containers without a class own CPUs: those that ask for
	// whole ones, with equal request and limit.
	Whole WholeCPUs
	// Lend lets reclaimed containers use the CPUs of LSR pods.
	Lend bool
	// Roomy prefers the emptiest part of the machine to the fullest that holds
	// what is wanted.
	Roomy bool
	// NearDevices prefers CPUs of the NUMA nodes that a container's devices are at.
	NearDevices bool
	// CoreKind is the kind of cores that is preferred where a pod does not say;
	// PlainCore for none.
	CoreKind topology.CoreKind
	// Isolated says who rather owns CPUs that the kernel's scheduler leaves out,
	// where a pod does not say.
	Isolated IsolatedCPUs
}

// IsolatedCPUs says which containers rather own isolated CPUs.
type IsolatedCPUs int

// The choices. Nothing spreads threads over isolated CPUs: a container of one
// thread has one for itself, and one of several may find all on the first.
const (
	IsolatedSingle IsolatedCPUs = iota // those that own one CPU
	IsolatedPreferred
	IsolatedAvoided
)

// WholeCPUs says in which pods containers without a class own CPUs.
type WholeCPUs int

// The choices.
const (
	WholeNowhere    WholeCPUs = iota
	WholeGuaranteed           // as the kubelet's static CPU manager
	WholeAnywhere             // in Burstable pods, too
)

// ask is what the agent is to choose.
type ask struct {
	n   int
	key string // what asked for it
	// pod: the CPUs are for all containers of the pod.
	pod bool
}

// chosenForPod reports whether all containers of a pod own the same CPUs, chosen
// by the agent.
func (d *draft) chosenForPod(p *Pod) bool {
	return d.policy.Place && d.policy.Choosing != nil && !p.Intent.CPUs.Said() && p.Intent.Class.V == intent.Dedicated &&
		p.due(p.Pod.Resources).Told()
}

// asks returns what is to be chosen for a container, by the resources the runtime
// was asked for; ok is false where nothing is.
func (d *draft) asks(p *Pod, r *lifecycle.Resources) (a ask, ok bool) {
	ch, in := d.policy.Choosing, p.Intent
	if ch == nil || !d.policy.Place || in.CPUs.Said() {
		return a, false
	}
	switch {
	case d.chosenForPod(p):
		return ask{n: p.due(p.Pod.Resources).CPUs, key: in.Class.Key, pod: true}, true
	case in.Class.V == intent.Dedicated:
		return ask{n: p.due(r).CPUs, key: in.Class.Key}, true
	case in.Class.Said() || ch.Whole == WholeNowhere || d.policy.KubeletOwns || in.QoS == intent.BestEffort || in.QoS == intent.Burstable && ch.Whole != WholeAnywhere:
		return a, false
	}
	a.n, a.key = wholeCPUs(r), "placement.wholeCPUs"
	return a, a.n > 0
}

// wholeCPUs returns how many CPUs a container asks for, where they are whole and
// request and limit are equal; else 0.
func wholeCPUs(r *lifecycle.Resources) int {
	shares, quota, period := r.CPU.Shares.V, r.CPU.Quota.V, int64(r.CPU.Period.Or(100000))
	if shares == 0 || shares%1024 != 0 || period <= 0 || quota != int64(shares/1024)*period {
		return 0
	}
	return int(shares / 1024)
}

// choose chooses CPUs for a container to own. The error is a sentence for
// people; why lists what decided.
func (d *draft) choose(p *Pod, c *Container) (cpus topology.Set, key, why string, err error) {
	a, ok := d.asks(p, &c.Pristine)
	if !ok || a.n == 0 && p.kindOf(c.Name) == lifecycle.Ephemeral { // which has no resources
		return cpus, "", "", nil
	}
	if g, owns := d.ledger.Of(c.Key); owns {
		cpus = g.CPUs
		if d.resizing != nil { // created anew, with less
			cpus = d.resized(p, c, cpus)
		}
		return cpus, a.key, "chosen before", d.grantable(p, c.Key, cpus)
	}
	if have := d.ledger.OfPod(p.Pod.UID); a.pod && !have.Empty() {
		return have, a.key, "those of its pod", d.grantable(p, c.Key, have)
	}
	if d.policy.KubeletOwns {
		return cpus, a.key, "", errKubeletOwns
	}
	sum := p.Pod.Resources
	if a.pod {
		if now := d.podSum(p, c); p.due(&now).CPUs > a.n { // it was refused, and resized since
			a.n, sum = p.due(&now).CPUs, &now
		}
	}
	if err := d.policy.Rules.CPUs(p.Pod.Namespace, max(a.n, 1), p.means(sum, &c.Pristine)); err != nil {
		return cpus, a.key, "", err
	}
	if a.n == 0 {
		return cpus, a.key, "", noWhole(p, sum, &c.Pristine)
	}
	has := d.passed(p, c)
	w := d.question(p, c, a.n)
	if !has.Empty() {
		w.Preferences = slices.Insert(w.Preferences, 0, choose.Preference{Name: "CPUs its pod has already", CPUs: has})
	}
	var reasons []choose.Reason
	if p.Intent.NUMA.Said() {
		w.From = w.From.Union(has)
		cpus, reasons, err = d.bound(p, c, w)
	} else {
		var chosen choose.Chosen
		chosen, err = d.chooseAmong(w, has)
		cpus, reasons = chosen.CPUs, chosen.Why
	}
	if err == nil {
		err = d.grantable(p, c.Key, cpus)
	}
	return cpus, a.key, "chosen: " + words(reasons), err
}

// question asks for n CPUs that a container of a pod could come to own.
func (d *draft) question(p *Pod, c *Container, n int) choose.Want {
	return choose.Want{
		N: n, From: d.ownable(p), Roomy: d.policy.Choosing.Roomy, Cores: cores(p.Intent), Preferences: d.preferences(p, c, n),
	}
}

// cores says how the threads of cores may be divided.
func cores(in *intent.Pod) choose.Cores {
	switch {
	case in.NUMA.V.WholeCores, in.Cores.V.Whole:
		return choose.WholeCores
	case in.Cores.V.Spread:
		return choose.SpreadThreads
	}
	return choose.AnyThread
}

// words puts reasons into one line.
func words(reasons []choose.Reason) string {
	if len(reasons) == 0 {
		return "there was no choice"
	}
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

// ownable are the CPUs a pod could come to own: nobody's, and none that are
// reserved or that the kubelet gave away.
func (d *draft) ownable(p *Pod) topology.Set {
	free := d.policy.Pools.Online.Minus(d.policy.Pools.Reserved).Minus(d.ledger.Exclusive())
	for _, g := range d.ledger.AllKept() {
		free = free.Minus(g.CPUs)
	}
	if !p.Within.Empty() {
		free = free.And(p.Within)
	}
	taken, _ := d.kubelets(p, free)
	return free.Minus(taken)
}

// bound chooses NUMA nodes and, on these, CPUs.
func (d *draft) bound(p *Pod, c *Container, w choose.Want) (topology.Set, []choose.Reason, error) {
	numa, tree := p.Intent.NUMA.V, d.policy.Choosing.Tree
	if none := d.absent(numa.IDs); len(none) > 0 {
		var all []int
		for _, n := range d.machine.Nodes {
			all = append(all, n.ID)
		}
		return topology.Set{}, nil, fmt.Errorf("NUMA nodes %s are wanted, and %s is not there: this machine has %s",
			topology.FormatList(numa.IDs), topology.FormatList(none), topology.FormatList(all))
	}
	bind := choose.BindWant{
		N: w.N, From: w.From, Among: d.among(p), Count: numa.Count, Even: numa.Even, Cores: w.Cores, BySocket: numa.BySocket, Roomy: w.Roomy,
	}
	bind.Near, bind.NearName = d.devices(p, c).near()
	for _, exact := range [][]int{numa.IDs, p.Intent.Nodes.V} {
		if bind.Count == 0 && len(exact) > 0 {
			bind.Count = len(exact)
		}
	}
	// What pools bound to a node have is the last to be taken: they have nowhere
	// else to go.
	bind.From = w.From.Minus(d.ofBoundPools())
	ids, why, err := tree.Bind(bind)
	if err != nil {
		bind.From = w.From
		ids, why, err = tree.Bind(bind)
	}
	if err != nil {
		return topology.Set{}, nil, err
	}
	var on topology.Set
	for _, id := range ids {
		node, _ := d.machine.Node(id)
		on = on.Union(node.CPUs)
	}
	if numa.Exclusive {
		return w.From.And(on), why, nil
	}
	w.From = w.From.And(on)
	if numa.Even {
		w.Spread, w.Even = []topology.Level{topology.NodeLevel}, true
	}
	chosen, err := tree.Choose(w)
	if err == nil && bind.Count > 1 && !numa.Even && w.N >= bind.Count && d.machine.Count(topology.NodeLevel, chosen.CPUs) < len(ids) {
		// So many nodes, or these, were asked for: its memory is on those of its CPUs.
		w.Spread = []topology.Level{topology.NodeLevel}
		if over, err := tree.Choose(w); err == nil {
			chosen = over
		}
	}
	return chosen.CPUs, append(why, chosen.Why...), err
}

// absent are those of some NUMA nodes that the machine does not have.
func (d *draft) absent(ids []int) (none []int) {
	for _, id := range ids {
		if _, there := d.machine.NodeIndex(id); !there {
			none = append(none, id)
		}
	}
	return none
}

// ofBoundPools are the CPUs of shared pools that are bound to a NUMA node.
func (d *draft) ofBoundPools() topology.Set {
	var all topology.Set
	for w, n := range d.needs() {
		if w.Bound && !w.Guest(n.milli) {
			cpus, _ := d.layout().CPUs(placement.Seat{Pool: placement.Shared, Which: w})
			all = all.Union(cpus)
		}
	}
	return all
}

// among are the ids of the NUMA nodes a bound pod may have, nil for all.
func (d *draft) among(p *Pod) []int {
	numa := p.Intent.NUMA.V
	var out []int
	for _, n := range d.machine.Nodes {
		switch {
		case len(numa.IDs) > 0 && !slices.Contains(numa.IDs, n.ID):
		case len(numa.IDs) == 0 && p.Intent.Nodes.Said() && !slices.Contains(p.Intent.Nodes.V, n.ID):
		case numa.Exclusive && !d.untouched(p, n):
		default:
			out = append(out, n.ID)
		}
	}
	if out == nil {
		out = []int{} // none, which is not all
	}
	return out
}

// untouched reports whether nobody owns a CPU of a NUMA node and no pool is bound
// to it: somebody can have it alone.
func (d *draft) untouched(p *Pod, n topology.Node) bool {
	if n.CPUs.Empty() || !d.ownable(p).Contains(n.CPUs.Minus(d.policy.Pools.Reserved)) {
		return false
	}
	for w, need := range d.needs() {
		if w.Bound && w.Node == n.ID && !w.Guest(need.milli) {
			return false
		}
	}
	return true
}

// homes are the ids of the NUMA nodes whose pool a container may be put into: of
// those its pod may have, the ones its memory is on by the kubelet's word.
func (d *draft) homes(p *Pod, c *Container) []int {
	bound := d.boundMems(p, c)
	if len(bound) == 0 {
		return d.among(p)
	}
	return slices.DeleteFunc(d.among(p), func(id int) bool { return !slices.Contains(bound, id) })
}

// settleHome finds the NUMA node of a pod that shares one. What was chosen when
// the container was created stands, and all containers of a pod are on one node.
// The error is a sentence for people.
func (d *draft) settleHome(p *Pod, c *Container, isNew bool) error { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	class := p.Intent.Class.V
	if c.Home.Set || !isNew || class != intent.Shared && class != intent.Reclaimed || !p.Intent.NUMA.Said() || d.policy.Choosing == nil || d.policy.Pools.Sizing == nil {
		return nil
	}
	for _, id := range slices.Concat(d.order, d.base.byPod[c.PodID]) {
		if o := d.container(id); o != nil && o.Key.PodUID == c.Key.PodUID && o.Home.Set {
			c.Home = o.Home
			return nil
		}
	}
	milli := max(request(&c.Pristine), request(PodPristine(p.Pod)))
	needs := d.needs()
	most, at := int64(-1), -1
	for _, id := range d.homes(p, c) {
		node, _ := d.machine.Node(id)
		left := int64(node.CPUs.And(d.policy.Pools.Shared).Minus(d.ledger.Exclusive()).Len()) * 1000
		shut := left == 0
		for w, n := range needs {
			if !w.Bound || w.Node != id {
				continue
			}
			left -= n.milli
			shut = shut || w.Alone || p.Intent.NUMA.V.Alone && !w.Guest(n.milli)
		}
		if left -= milli; !shut && left > most {
			most, at = left, id
		}
	}
	if at < 0 {
		return fmt.Errorf("no NUMA node has room for %d milli-CPUs more", milli)
	}
	c.Home = lifecycle.Some(at)
	return nil
}
