package churn

import (
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// resizeAny resizes a random running owner, if there is one, and sometimes a pod whose request for CPUs was refused.
func (n *node) resizeAny() {
	grants, refused := n.observer.grants(), n.rng.IntN(10) == 0
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

// resize resizes a pod's main container in place to another number of CPUs, sometimes to more than the node has. The
// pod keeps its CPUs or a part of them, and at no write does another container have one of them.
func (n *node) resize(p *pod) {
	cpus := 1 + n.rng.IntN(p.kind.milli[1]/1000+2)
	if n.rng.IntN(10) == 0 {
		cpus = 200
	}
	before := n.observer.resizing(p.ref())
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
	n.must("resize", u.WithPodWrites(n.runtime.SetPodCgroup, func() error {
		return n.runtime.UpdateContainer(n.t.Context(), u.Container, u.Resources)
	}))
	n.late.resizing(false)
	p.did("resize of main to %d CPUs, with %v its own: %s", cpus, before.Members(), summary(n.owning(p)))
	if before.Empty() {
		p.cpus = cpus // a refused pod may get them when it is created again
		return
	}
	reported := n.owning(p)
	ids, err := topology.ParseList(reported.CPUs)
	n.must("CPUs it owns", err)
	owned := topology.SetOf(ids...)
	n.observer.resized(p.ref(), owned)
	switch {
	case reported.CPUGroup != "exclusive":
		n.blame(p, "%s lost its CPUs by a resize: %+v", p.ref(), reported)
	case p.kind.all && owned == before:
	case owned == before && before.Len() != cpus && len(reported.Problems) == 0:
		n.blame(p, "%s owns %s and requests %d CPUs, and no reason is reported: %+v", p.ref(), reported.CPUs, cpus, reported)
	case owned == before:
		n.kept++
	case owned.Len() != cpus:
		n.blame(p, "a resize to %d CPUs took %s from %v to %s", cpus, p.ref(), before.Members(), reported.CPUs)
	case !owned.Contains(before) && !before.Contains(owned):
		n.blame(p, "a resize moved %s from %v to %s", p.ref(), before.Members(), reported.CPUs)
	default:
		n.resized++
		p.cpus = cpus
	}
	if p.kind.bound && !n.observer.onOneNode(owned) {
		n.blame(p, "%s is bound to a NUMA node and owns %s after a resize", p.ref(), reported.CPUs)
	}
}

// owning returns the status of the first container of a pod that owns CPUs, or of the main container if none does.
// After a refusal a sidecar may have been created again, and the main container not.
func (n *node) owning(p *pod) api.Container {
	main := n.explain(p.ref().In("main"))
	for _, c := range p.ctrs {
		if reported := n.explain(p.ref().In(c.Name)); reported.CPUGroup == "exclusive" {
			reported.Problems = append(reported.Problems, main.Problems...)
			return reported
		}
	}
	return main
}

// onOneNode reports whether all CPUs of a set are at one NUMA node.
func (e *observer) onOneNode(cpus topology.Set) bool {
	for _, node := range e.nodes {
		if node.Contains(cpus) {
			return true
		}
	}
	return false
}
