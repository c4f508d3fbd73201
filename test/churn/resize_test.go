package churn

import (
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// resizeAny resizes one of the pods that own CPUs and run, if there is any; now and
// then one that was to own some.
func (n *node) resizeAny() {
	grants, refused := n.eye.grants(), n.rng.IntN(10) == 0
	var able []*pod
	for _, p := range n.pods {
		if p.kind.owns && !p.stopped && !n.waiting[p.ref().In("main")] && (refused || !grants[p.ref()].Empty()) {
			able = append(able, p)
		}
	}
	if len(able) > 0 {
		n.resize(able[n.rng.IntN(len(able))])
	}
}

// resize is an in-place resize of a pod's main container to another number of CPUs,
// sometimes more than it can have. It keeps what it has or a part of that, and
// nobody has a CPU of it at any write.
func (n *node) resize(p *pod) {
	cpus := 1 + n.rng.IntN(p.kind.milli[1]/1000+2)
	if n.rng.IntN(10) == 0 {
		cpus = 200
	}
	before := n.eye.resizing(p.ref())
	main := &p.ctrs[0]
	grows := int64(cpus)*100_000 > *main.Resources.Quota
	main.Resources.Shares, main.Resources.Quota = new(uint64(cpus)*1024), new(int64(cpus)*100_000)
	u := scenario.Update{Container: p.ref().In(main.Name), Resources: scenario.Resources{
		Shares: main.Resources.Shares, Quota: main.Resources.Quota, Period: main.Resources.Period,
	}}
	if sum := sim.SumResources(p.QoS, p.ctrs); grows {
		u.Pod = &sum
	} else {
		u.PodAfter = &sum
	}
	n.late.resizing(true)
	n.must("resize", u.Around(n.runtime.SetPodCgroup, func() error {
		return n.runtime.UpdateContainer(n.t.Context(), u.Container, u.Resources)
	}))
	n.late.resizing(false)
	p.did("resize of main to %d CPUs, with %v its own: %s", cpus, before.Members(), saying(n.owning(p)))
	if before.Empty() {
		p.cpus = cpus // one that was refused may have them when it is created again
		return
	}
	told := n.owning(p)
	ids, err := topology.ParseList(told.CPUs)
	n.must("CPUs it owns", err)
	owned := topology.SetOf(ids...)
	n.eye.resized(p.ref(), owned)
	switch {
	case told.Seat != "exclusive":
		n.blame(p, "%s lost its CPUs by a resize: %+v", p.ref(), told)
	case p.kind.all && owned == before:
	case owned == before && before.Len() != cpus && len(told.Problems) == 0:
		n.blame(p, "%s owns %s and asks for %d CPUs, and nothing says why: %+v", p.ref(), told.CPUs, cpus, told)
	case owned == before:
		n.kept++
	case owned.Len() != cpus:
		n.blame(p, "a resize to %d CPUs took %s from %v to %s", cpus, p.ref(), before.Members(), told.CPUs)
	case !owned.Contains(before) && !before.Contains(owned):
		n.blame(p, "a resize moved %s from %v to %s", p.ref(), before.Members(), told.CPUs)
	default:
		n.resized++
		p.cpus = cpus
	}
	if p.kind.bound && !n.eye.onOneNode(owned) {
		n.blame(p, "%s is bound to a NUMA node and owns %s after a resize", p.ref(), told.CPUs)
	}
}

// owning is what the agent says of the first container of a pod that owns CPUs: a
// side may have been created again since the pod was refused, and the main container
// not. Where none does it is what it says of the main one.
func (n *node) owning(p *pod) api.Container {
	main := n.explain(p.ref().In("main"))
	for _, c := range p.ctrs {
		if told := n.explain(p.ref().In(c.Name)); told.Seat == "exclusive" {
			told.Problems = append(told.Problems, main.Problems...)
			return told
		}
	}
	return main
}

// onOneNode reports whether some CPUs are all of one NUMA node.
func (e *eye) onOneNode(cpus topology.Set) bool {
	for _, node := range e.nodes {
		if node.Contains(cpus) {
			return true
		}
	}
	return false
}
