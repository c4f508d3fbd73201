package facts

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Expect asks resource plugins to allocate resources for a container that no runtime has reported yet. If a runtime
// later creates the container with the same resource requests, the plugins give the same answers. The result ok is
// false if the agent cannot decide about the container before its creation: the kubelet's grants are not known yet, a
// plugin refuses the container, or the engine would refuse the container now.
func (g *Gatherer) Expect(ctx context.Context, ev *lifecycle.Event) (got GatheredFacts, ok bool) {
	if g.grantsUnknown(ev.Pod) {
		return got, false
	}
	if g.o.Plugins != nil {
		if err := g.requestAllocation(ctx, &route.Capabilities{}, ev, &got); err != nil {
			return got, false
		}
	}
	return got, !got.notAllocated
}

// grantsUnknown reports whether the decision about a pod depends on grants of the kubelet that are not known.
func (g *Gatherer) grantsUnknown(pod *lifecycle.Pod) bool {
	return g.o.Grants != nil && g.grantsMatter(pod) && g.o.Grants.Granted(pod) == nil
}

// ReleaseExpected releases what plugins allocated for a pod before a runtime reported the pod. If a container of the
// pod was created, ReleaseExpected releases nothing.
func (g *Gatherer) ReleaseExpected(podUID string) {
	if g.o.Plugins != nil {
		g.o.Plugins.ReleaseIfNotCreated(podUID)
	}
}
