package nodeview

import (
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/report/api"
)

// demotionOf describes the demotion of memory for status; nil if it is not configured.
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

// containerDemotion describes the demotion of a container's memory; nil if the container does not have both fast and
// slow memory, or if nothing is moved on the node.
func (v *View) containerDemotion(ctr *engine.Container) *api.ContainerDemotion {
	r, known := v.Demotion.Containers[ctr.ID]
	if !known || v.Demotion.Reason != "" {
		return nil
	}
	return &api.ContainerDemotion{Anonymous: r.Anonymous, Slow: r.Slow, Moved: r.Moved, Reason: r.Reason}
}
