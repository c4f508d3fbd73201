package facts

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Expect asks resource plugins about a container that no runtime has reported yet. The answers are
// those of its creation, if that requests the same. ok is false if it must be decided at its
// creation: the kubelet's grants are not known yet, a plugin does not answer, or the topology
// manager refuses it now.
func (g *Gatherer) Expect(ctx context.Context, ev *lifecycle.Event) (got Gathered, ok bool) {
	if g.grantsUnknown(ev.Pod) {
		return got, false
	}
	if g.o.Plugins != nil {
		g.allocate(ctx, &route.Capabilities{}, ev, &got)
	}
	return got, got.refused == nil && !got.unanswered
}

// grantsUnknown reports whether a pod's decision depends on grants of the kubelet that are not known.
func (g *Gatherer) grantsUnknown(pod *lifecycle.Pod) bool {
	return g.o.Grants != nil && g.grantsMatter(pod) && g.o.Grants.Granted(pod) == nil
}

// NotExpected releases what plugins allocated for a pod of which no container was created.
func (g *Gatherer) NotExpected(podUID string) {
	if g.o.Plugins != nil {
		g.o.Plugins.RemoveExpected(podUID)
	}
}
