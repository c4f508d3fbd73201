package conductor

import (
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// gather collects the facts for one event: what pods' cgroups allow, what is
// known of their specs, and the records containers carry. All are file reads or
// less.
func (c *Conductor) gather(w *work, f *engine.Facts) { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	c.gatherSpecs(w.ev, f)
	switch w.ev.Kind {
	case lifecycle.Synchronize:
		c.findUnread(w.ev)
		f.Grants = c.checkpoint.Grants()
		uid := make(map[string]string, len(w.ev.Pods))
		for _, p := range w.ev.Pods {
			if p != nil {
				uid[p.ID] = p.UID
				c.seePod(p)
				c.parent(p, f)
			}
		}
		for _, ctr := range w.ev.Containers {
			if ctr != nil {
				c.record(uid[ctr.PodID], ctr, f)
			}
		}
		c.adopted(w, f)
	case lifecycle.Configure: // CPUs that went offline may be gone from cgroups for good, or be back in them
		for _, p := range c.living() {
			c.parent(p, f)
		}
	case lifecycle.RunPodSandbox:
		if w.ev.Pod != nil {
			c.findUnread(w.ev)
			c.seePod(w.ev.Pod)
			c.parent(w.ev.Pod, f)
		}
	case lifecycle.StartContainer, lifecycle.UpdateContainer:
		if w.ev.Pod != nil && w.ev.Container != nil {
			c.findUnread(w.ev)
			c.seePod(w.ev.Pod)
			c.record(w.ev.Pod.UID, w.ev.Container, f)
			c.adoptedLate(w, f)
		}
	case lifecycle.CreateContainer, lifecycle.RemoveContainer:
		if w.ev.Pod != nil && w.ev.Container != nil && w.ev.Kind == lifecycle.CreateContainer {
			c.record(w.ev.Pod.UID, w.ev.Container, f)
			c.stranger(w, f)
		}
		c.ended(w, f)
	}
}

// living are the pods that have not been stopped.
func (c *Conductor) living() []*lifecycle.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*lifecycle.Pod
	for _, id := range c.state.Pods() {
		if p := c.state.Pod(id); !p.Stopped {
			all = append(all, p.Pod)
		}
	}
	return all
}

func (c *Conductor) parent(p *lifecycle.Pod, f *engine.Facts) {
	dir, err := cgroup.PodPath(p.CgroupParent)
	if err != nil {
		return // named when something has to be written there
	}
	if list, ok := c.keeper.ParentCPUs(dir); ok {
		put(&f.ParentCPUs, p.ID, list)
	}
}

func (c *Conductor) record(podUID string, ctr *lifecycle.Container, f *engine.Facts) {
	if r, ok := c.checkpoint.Record(ctr.ID); ok {
		put(&f.Records, ctr.ID, r)
		return
	}
	text, stamped := ctr.Annotations[RecordKey]
	if !stamped {
		return
	}
	r, err := c.signer.Read(podUID, ctr.Name, text)
	if err != nil {
		put(&f.Distrusted, ctr.ID, lifecycle.Problem{
			Key: RecordKey, Value: intent.Printable(text), Reason: "record ignored: " + err.Error(), Refused: true,
		})
		return
	}
	put(&f.Records, ctr.ID, r)
}

// remindStranger is how often the log names a creation with a foreign record.
const remindStranger = 5 * time.Minute

// stranger logs a creation that carries a record already, and not one of ours: an
// agent that answers before this one has put it there, unless somebody forged it. The
// runtime refuses a container that both adjust.
func (c *Conductor) stranger(w *work, f *engine.Facts) {
	q, found := f.Distrusted[w.ev.Container.ID]
	if !found {
		return
	}
	now := c.now()
	c.mu.Lock()
	quiet := !c.strangerAt.IsZero() && now.Sub(c.strangerAt) < remindStranger
	if !quiet {
		c.strangerAt = now
	}
	c.mu.Unlock()
	if quiet {
		return
	}
	c.log.Error("a new container carries a record that is not ours: another agent is attached to this runtime, or the record is forged; run one agent on a node",
		logkey.Op, w.op, logkey.Pod, w.ev.Pod.Name, logkey.Namespace, w.ev.Pod.Namespace, logkey.Container, w.ev.Container.Name, logkey.Reason, q.Reason)
}

// adopted reads what the kernel gives containers whose record is lost, of an
// attachment whose records only the checkpoint had, and those that own CPUs by a
// record that may be of before a resize. Where a record is not trusted, what all
// have tells who owned what.
func (c *Conductor) adopted(w *work, f *engine.Facts) { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	lost := w.from != nil && !stamps(w.from)
	all := unreadAmong(w.ev.Containers)
	f.Kernel = map[string]string{}
	parents := map[string]string{}
	for _, p := range w.ev.Pods {
		if p != nil {
			parents[p.ID] = p.CgroupParent
		}
	}
	for _, ctr := range w.ev.Containers {
		if ctr == nil {
			continue
		}
		r, known := f.Records[ctr.ID]
		owned := known && !r.Late && r.CPUs != ""
		adopts := owned || !known && lost || len(f.Distrusted) > 0
		if !adopts && !all {
			continue
		}
		dir, err := cgroup.Path(parents[ctr.PodID], ctr.CgroupsPath)
		if err != nil {
			continue // named when something has to be written there
		}
		if list, ok := c.keeper.ParentCPUs(dir); ok {
			if adopts && ctr.Unread == "" {
				f.Kernel[ctr.ID] = list
			}
			if all {
				put(&f.Runs, ctr.ID, list)
			}
		}
	}
}

// ended finds pods that own CPUs and have ended unnoticed: some runtimes do not
// tell of the end of pods older than their last restart, but the kubelet
// removes the pod's cgroup. It looks only when CPUs are wanted or may be free.
func (c *Conductor) ended(w *work, f *engine.Facts) {
	if w.ev.Pod == nil {
		return
	}
	for id, parent := range c.owners(w.ev) {
		if c.vanished(id, parent) {
			put(&f.Ended, id, true)
		}
	}
}

// put makes the map when it is needed: most events have none of these facts.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// owners returns the cgroup parents of the pods that own CPUs, where the event
// asks for their CPUs or may have freed them.
func (c *Conductor) owners(ev *lifecycle.Event) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := ev.Kind == lifecycle.RemoveContainer
	p := c.state.Pod(ev.Pod.ID)
	if !removed && (p == nil || !p.Intent.CPUs.Said()) {
		return nil
	}
	parents := map[string]string{}
	for _, p := range c.state.Owners() {
		if removed || p.Pod.ID != ev.Pod.ID {
			parents[p.Pod.ID] = p.Pod.CgroupParent
		}
	}
	return parents
}
