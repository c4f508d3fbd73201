package nodeview

import (
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
)

// demotionOf describes for status how the kernel moves cold memory to slow memory nodes; nil if this is not configured.
func demotionOf(r demotion.Report) *api.Demotion {
	if !r.Enabled {
		return nil
	}
	out := &api.Demotion{Containers: len(r.Containers), Moved: r.Moved, Reason: r.Reason}
	for _, c := range r.Containers {
		if c.Reason != "" {
			out.Skipped++
		}
	}
	return out
}

// containerDemotion describes how a container's cold memory is moved to slow memory nodes. It returns nil if the
// container does not have both fast and slow memory nodes, or if the agent moves no memory on the node.
func (v *View) containerDemotion(ctr *engine.Container) *api.ContainerDemotion {
	r, known := v.Demotion.Containers[ctr.ID]
	if !known || v.Demotion.Reason != "" {
		return nil
	}
	return &api.ContainerDemotion{Anonymous: r.Anonymous, Slow: r.Slow, Moved: r.Moved, Reason: r.Reason}
}
