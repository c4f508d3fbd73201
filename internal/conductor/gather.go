package conductor

import (
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// gather collects the facts for one event: what pods' cgroups allow, and the
// records containers carry. Both are file reads or less.
func (c *Conductor) gather(w *work, f *engine.Facts) {
	f.ParentCPUs = map[string]string{}
	f.Records = map[string]engine.Record{}
	switch w.ev.Kind {
	case lifecycle.Synchronize:
		uid := make(map[string]string, len(w.ev.Pods))
		for _, p := range w.ev.Pods {
			if p != nil {
				uid[p.ID] = p.UID
				c.parent(p, f)
			}
		}
		for _, ctr := range w.ev.Containers {
			if ctr != nil {
				c.record(w, uid[ctr.PodID], ctr, f)
			}
		}
	case lifecycle.RunPodSandbox:
		if w.ev.Pod != nil {
			c.parent(w.ev.Pod, f)
		}
	case lifecycle.StartContainer, lifecycle.UpdateContainer:
		if w.ev.Pod != nil && w.ev.Container != nil {
			c.record(w, w.ev.Pod.UID, w.ev.Container, f)
		}
	}
}

func (c *Conductor) parent(p *lifecycle.Pod, f *engine.Facts) {
	dir, err := cgroup.PodPath(p.CgroupParent)
	if err != nil {
		return // named when something has to be written there
	}
	if list, ok := c.keeper.ParentCPUs(dir); ok {
		f.ParentCPUs[p.ID] = list
	}
}

func (c *Conductor) record(w *work, podUID string, ctr *lifecycle.Container, f *engine.Facts) {
	text, stamped := ctr.Annotations[RecordKey]
	if !stamped {
		return
	}
	r, err := c.signer.read(podUID, ctr.Name, text)
	if err != nil {
		w.problems = append(w.problems, lifecycle.Problem{
			Key: RecordKey, Value: ctr.ID, Reason: "record ignored: " + err.Error(),
		})
		return
	}
	f.Records[ctr.ID] = r
}
