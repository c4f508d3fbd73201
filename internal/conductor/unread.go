package conductor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// findUnread looks for the cgroups of pods and containers that the runtime lists and
// does not describe: what they have is there, and there they are kept from what others
// own. What is found is put into copies: events are their attachments'.
func (c *Conductor) findUnread(ev *lifecycle.Event) {
	parents := map[string]string{}
	var dirs []string
	for _, p := range append(ev.Pods[:len(ev.Pods):len(ev.Pods)], ev.Pod) {
		if p == nil {
			continue
		}
		parents[p.ID] = p.CgroupParent
		if dir, err := cgroup.PodPath(p.CgroupParent); err == nil {
			dirs = append(dirs, dir)
		}
	}
	for i, p := range ev.Pods {
		ev.Pods[i] = c.findPod(p, dirs)
		if p != nil {
			parents[p.ID] = ev.Pods[i].CgroupParent
		}
	}
	if ev.Pod != nil {
		ev.Pod = c.findPod(ev.Pod, dirs)
		parents[ev.Pod.ID] = ev.Pod.CgroupParent
		ev.Container = c.findContainer(ev.Container, parents[ev.Pod.ID])
	}
	for i, ctr := range ev.Containers {
		if ctr != nil {
			ev.Containers[i] = c.findContainer(ctr, parents[ctr.PodID])
		}
	}
}

func (c *Conductor) findPod(p *lifecycle.Pod, known []string) *lifecycle.Pod {
	if p == nil || p.Unread == "" || p.CgroupParent != "" || p.UID == "" {
		return p
	}
	dir, found := c.keeper.FindPod(p.UID, known)
	if !found {
		return p
	}
	n := *p
	n.CgroupParent = "/" + dir
	return &n
}

func (c *Conductor) findContainer(ctr *lifecycle.Container, parent string) *lifecycle.Container {
	if ctr == nil || ctr.Unread == "" || ctr.CgroupsPath != "" {
		return ctr
	}
	above, err := cgroup.PodPath(parent)
	if err != nil {
		return ctr // named when something has to be written there
	}
	dir, found := c.keeper.Find(above, ctr.ID)
	if !found {
		return ctr
	}
	n := *ctr
	n.CgroupsPath = "/" + dir
	return &n
}

// unreadAmong reports whether a container is unread: what the kernel gives to all tells
// then whether it runs on CPUs of its own.
func unreadAmong(all []*lifecycle.Container) bool {
	return slices.ContainsFunc(all, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Unread != "" })
}

// adoptedLate reads what the kernel gives a container that could not be read before, or
// cannot now, where a record does not say what it has by now.
func (c *Conductor) adoptedLate(w *work, f *engine.Facts) {
	ctr := w.ev.Container
	if r, recorded := f.Records[ctr.ID]; recorded && r.Late || w.ev.Kind != lifecycle.StartContainer {
		return
	}
	c.mu.Lock()
	known := c.state.Container(ctr.ID)
	unread := ctr.Unread != "" || known != nil && known.Unread != ""
	c.mu.Unlock()
	if !unread {
		return
	}
	f.Grants = c.checkpoint.Grants()
	if dir, err := cgroup.Path(w.ev.Pod.CgroupParent, ctr.CgroupsPath); err == nil {
		if list, ok := c.keeper.ParentCPUs(dir); ok {
			if ctr.Unread != "" {
				put(&f.Runs, ctr.ID, list)
			} else {
				put(&f.Kernel, ctr.ID, list)
			}
		}
	}
}

// noteLate keeps what a container would return to now, where that is known.
func (c *Conductor) noteLate(ctr *engine.Container) {
	if !ctr.Unasked {
		c.checkpoint.Note(ctr.ID, c.recordOf(ctr))
	}
}
