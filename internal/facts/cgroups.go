package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readCgroups looks for the cgroups of the event's pods, and reads what they allow. CPUs
// that went offline may be gone from cgroups for good, or be back in them.
func (g *Gatherer) readCgroups(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	allowed := func(p *lifecycle.Pod) {
		dir, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			return // named when something has to be written there
		}
		if list, ok := g.o.Allowed(dir); ok {
			put(&f.ParentCPUs, p.ID, list)
		}
	}
	switch ev.Kind {
	case lifecycle.Configure:
		for _, p := range g.pick(allPods, anyPod) {
			allowed(p)
		}
	case lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StartContainer, lifecycle.UpdateContainer:
		g.findUnread(ev)
		eachPod(ev, func(p **lifecycle.Pod) {
			g.o.Presence.Seen(*p)
			if ev.Container == nil { // else its pod is known
				allowed(*p)
			}
		})
	}
}

// findUnread looks for the cgroups of pods and containers that the runtime lists and
// does not describe: what they have is there, and there they are kept from what others
// own. What is found is put into copies: events are their attachments'.
func (g *Gatherer) findUnread(ev *lifecycle.Event) {
	var dirs []string
	eachPod(ev, func(p **lifecycle.Pod) {
		if dir, err := cgroup.PodPath((*p).CgroupParent); err == nil {
			dirs = append(dirs, dir)
		}
	})
	eachPod(ev, func(p **lifecycle.Pod) {
		if (*p).Unread == "" || (*p).CgroupParent != "" || (*p).UID == "" {
			return
		}
		if dir, found := g.o.Tree.FindPod((*p).UID, dirs); found {
			n := **p
			n.CgroupParent = "/" + dir
			*p = &n
		}
	})
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		if (*ctr).Unread == "" || (*ctr).CgroupsPath != "" {
			return
		}
		above, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			return // named when something has to be written there
		}
		if dir, found := g.o.Tree.Find(above, (*ctr).ID); found {
			n := **ctr
			n.CgroupsPath = "/" + dir
			*ctr = &n
		}
	})
}

// readRecords adds the records of containers that may carry one.
func (g *Gatherer) readRecords(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	switch ev.Kind {
	case lifecycle.Synchronize, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer:
	default:
		return
	}
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		id, name := (*ctr).ID, (*ctr).Name
		if r, late := g.o.Checkpoint.Record(id); late {
			put(&f.Records, id, r)
			return
		}
		text, stamped := (*ctr).Annotations[intent.RecordKey]
		if !stamped {
			return
		}
		if r, err := g.o.Signer.Read(p.UID, name, text); err == nil {
			put(&f.Records, id, r)
		} else {
			put(&f.Distrusted, id, lifecycle.Problem{
				Key: intent.RecordKey, Value: intent.Printable(text), Reason: "record ignored: " + err.Error(), Refused: true,
			})
		}
	})
}

// readCPUs reads what the kernel gives containers of which a record does not say what
// they have by now.
//
// Of a Synchronize they are those whose record is lost, of an attachment whose records
// only the checkpoint had, and those that own CPUs by a record that may be of before a
// resize. Where a record is not trusted, or a container is unread, what all have tells
// who owned what. Of a start it is one that could not be read before, or cannot now.
func (g *Gatherer) readCPUs(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	list := ev.Kind == lifecycle.Synchronize
	if !list && ev.Kind != lifecycle.StartContainer {
		return
	}
	if list {
		f.Kernel, f.Grants = map[string]string{}, g.o.Checkpoint.Grants()
	}
	unread := slices.ContainsFunc(ev.Containers, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Unread != "" })
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		c := *ctr
		kernel, runs := g.unsaid(can, c, f, list)
		if runs = runs || list && unread; !kernel && !runs {
			return
		}
		f.Grants = g.o.Checkpoint.Grants()
		dir, err := cgroup.Path(p.CgroupParent, c.CgroupsPath)
		if err != nil {
			return // named when something has to be written there
		}
		given, ok := g.o.Allowed(dir)
		if ok && kernel {
			put(&f.Kernel, c.ID, given)
		}
		if ok && runs {
			put(&f.Runs, c.ID, given)
		}
	})
}

// unsaid reports whether a record does not say what a container has by now, so that the
// kernel is asked, and whether it is asked because the runtime cannot describe the
// container at its start.
func (g *Gatherer) unsaid(can *route.Capabilities, c *lifecycle.Container, f *engine.Facts, list bool) (kernel, runs bool) {
	r, recorded := f.Records[c.ID]
	switch {
	case list:
		kernel = c.Unread == "" && (recorded && !r.Late && r.CPUs != "" || !recorded && !can.Stamps() || len(f.Distrusted) > 0)
	case !recorded || !r.Late:
		kernel, runs = c.Unread == "" && g.wasUnread(c.ID), c.Unread != ""
	}
	return kernel, runs
}

func (g *Gatherer) wasUnread(id string) bool {
	defer g.o.State.Free()
	known := g.o.State.Hold().Container(id)
	return known != nil && known.Unread.Why != ""
}

// readEnded finds pods that own CPUs and have ended unnoticed: some runtimes do not
// tell of the end of pods older than their last restart, but the kubelet removes the
// pod's cgroup. It is looked for only when CPUs are wanted or may be free.
func (g *Gatherer) readEnded(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Pod == nil || ev.Kind != lifecycle.CreateContainer && ev.Kind != lifecycle.RemoveContainer {
		return
	}
	for id, parent := range g.owners(ev) {
		if g.o.Presence.Vanished(id, parent) {
			put(&f.Ended, id, true)
		}
	}
}

// owners returns the cgroup parents of the pods that own CPUs, where the event
// asks for their CPUs or may have freed them.
func (g *Gatherer) owners(ev *lifecycle.Event) map[string]string {
	defer g.o.State.Free()
	s := g.o.State.Hold()
	removed := ev.Kind == lifecycle.RemoveContainer
	p := s.Pod(ev.Pod.ID)
	if !removed && (p == nil || !p.Intent.CPUs.Said()) {
		return nil
	}
	parents := map[string]string{}
	for _, p := range s.Owners() {
		if removed || p.Pod.ID != ev.Pod.ID {
			parents[p.Pod.ID] = p.Pod.CgroupParent
		}
	}
	return parents
}
