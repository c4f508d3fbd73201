package engine

import (
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// terms are on what terms containers of a pod own CPUs by the policy.
func (d *draft) terms(p *Pod) placement.Terms {
	return d.policy.Placement.Terms(d.machine, placement.Subject{Intent: p.Intent})
}

// termsOf are terms with what the kubelet gave one container of the pod, told what the
// runtime was asked for.
func (d *draft) termsOf(p *Pod, container string, told *lifecycle.Resources) placement.Terms {
	return d.policy.Placement.Terms(d.machine, placement.Subject{Intent: p.Intent, Told: told, Given: p.Granted.StaticOf(container)})
}

// nobody asks for nothing.
var nobody = Pod{Intent: &intent.Pod{}}

// KubeletGives reports whether the kubelet's static managers say who owns what.
func (p *Policy) KubeletGives() bool {
	return p.Place && p.Placement.Terms(nil, placement.Subject{Intent: nobody.Intent}).Elsewhere != nil
}

// HeedsGrants reports whether it matters which devices the kubelet granted a pod:
// who is handed devices, and whose CPUs are chosen near them. in is what it asks for,
// nil where that was not read yet.
func (p *Policy) HeedsGrants(pod *lifecycle.Pod, in *intent.Pod) bool {
	if intent.AsksDevices(pod) {
		return true
	}
	if t := p.Placement.Terms(nil, placement.Subject{Intent: nobody.Intent}); !t.NearDevices || !p.Place || t.Elsewhere != nil {
		return false
	}
	if in == nil {
		in = p.Serving.Read(pod, nil, p.Dialects)
	}
	return !in.CPUs.Said() && p.Placement.Terms(nil, placement.Subject{Intent: in}).Pays != placement.Nothing
}

// ask is what the policy is to choose.
type ask struct {
	n   int
	key string // what asked for it
	// pod: the CPUs are for all containers of the pod.
	pod bool
}

// chosenForPod reports whether all containers of a pod own the same CPUs, chosen
// by the policy.
func (d *draft) chosenForPod(p *Pod) bool {
	return d.policy.Place && !p.Intent.CPUs.Said() && d.terms(p).Pays == placement.Resources && p.due(p.Pod.Resources).Told()
}

// asks returns what is to be chosen for a container, by the resources the runtime
// was asked for; ok is false where nothing is.
func (d *draft) asks(p *Pod, r *lifecycle.Resources) (a ask, ok bool) {
	if !d.policy.Place || p.Intent.CPUs.Said() {
		return a, false
	}
	switch t := d.terms(p); {
	case t.Pays == placement.Nothing:
		return a, false
	case t.Pays == placement.WholeCPUs:
		n := wholeCPUs(r)
		return ask{n: n, key: t.Key}, n > 0
	case p.due(p.Pod.Resources).Told():
		return ask{n: p.due(p.Pod.Resources).CPUs, key: t.Key, pod: true}, true
	default:
		return ask{n: p.due(r).CPUs, key: t.Key}, true
	}
}

// wholeCPUs returns how many CPUs a container asks for, where they are whole and
// request and limit are equal; else 0.
func wholeCPUs(r *lifecycle.Resources) int {
	shares, quota, period := r.CPU.Shares.V, r.CPU.Quota.V, int64(r.CPU.Period.Or(defaultPeriod))
	if shares == 0 || shares%sharesOfCPU != 0 || period <= 0 || quota != int64(shares/sharesOfCPU)*period {
		return 0
	}
	return int(shares / sharesOfCPU)
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
	if err := d.terms(p).Elsewhere; err != nil {
		return cpus, a.key, "", err
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
	got, err := d.policy.Placement.Choose(d.view(d.ownable(p)), d.owner(p, c), placement.Want{N: a.n, Passed: d.passed(p, c)})
	if err == nil {
		err = d.grantable(p, c.Key, got.CPUs)
	}
	return got.CPUs, a.key, "chosen: " + got.Why, err
}

// view is what the policy sees of the node.
func (d *draft) view(free topology.Set) placement.View {
	return placement.View{Machine: d.machine, Pools: &d.policy.Pools, Layout: d.layout(), Free: free, Off: !d.policy.Place}
}

// owner is a container as the policy sees it that chooses CPUs for it.
func (d *draft) owner(p *Pod, c *Container) placement.Subject {
	grants := []lifecycle.DeviceGrant{p.Granted.Of(c.Name)}
	if d.chosenForPod(p) && p.Granted != nil {
		grants = slices.Collect(maps.Values(p.Granted.Containers))
	}
	return placement.Subject{Intent: p.Intent, Told: &c.Pristine, Devices: append(grants, c.Arrived), Owned: d.ledger.OfPod(p.Pod.UID)}
}

// shares asks the policy where a container sits that owns nothing.
func (d *draft) shares(p *Pod, c *Container, isNew bool, runsOn topology.Set) placement.Assignment {
	s := placement.Subject{
		Intent: p.Intent, Told: &c.Pristine, PodTold: PodPristine(p.Pod), Given: p.Granted.StaticOf(c.Name),
		New: isNew, RunsOn: runsOn, Home: c.Home,
	}
	var free topology.Set
	if isNew && p.Intent.NUMA.Said() {
		free = d.ownable(p)
		for _, id := range slices.Concat(d.order, d.base.byPod[c.PodID]) {
			if o := d.container(id); o != nil && o.Key.PodUID == c.Key.PodUID && o.Home.Set {
				s.PodHome = o.Home
				break
			}
		}
	}
	return d.policy.Placement.Share(d.view(free), s)
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
