package facts

import (
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Kernel reads cgroups.
type Kernel interface {
	// ParentCPUs returns the CPUs that a cgroup may use, as a kernel list.
	ParentCPUs(dir string) (list string, ok bool)
	// FindPod and Find look for the cgroup of a pod, and of a container below it.
	FindPod(uid string, known []string) (dir string, ok bool)
	Find(podDir, id string) (dir string, ok bool)
}

// Presence knows which pods' cgroups were there.
type Presence interface {
	// Seen notes that a pod's cgroup exists, where it does.
	Seen(pod *lifecycle.Pod)
	// Vanished reports whether a pod's cgroup was there and is gone.
	Vanished(podID, cgroupParent string) bool
}

// readCgroups looks for the cgroups of the event's pods, and reads what they allow. CPUs
// that went offline may be gone from cgroups for good, or be back in them.
func (g *Gatherer) readCgroups(_ Attachment, ev *lifecycle.Event, f *engine.Facts) {
	var pods []*lifecycle.Pod
	switch ev.Kind {
	case lifecycle.Configure:
		pods = g.living()
	case lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StartContainer, lifecycle.UpdateContainer:
		g.findUnread(ev)
		for _, p := range podsOf(ev) {
			g.o.Presence.Seen(p)
		}
		if ev.Container == nil {
			pods = podsOf(ev)
		}
	}
	for _, p := range pods {
		dir, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			continue // named when something has to be written there
		}
		if list, ok := g.o.Kernel.ParentCPUs(dir); ok {
			put(&f.ParentCPUs, p.ID, list)
		}
	}
}

// findUnread looks for the cgroups of pods and containers that the runtime lists and
// does not describe: what they have is there, and there they are kept from what others
// own. What is found is put into copies: events are their attachments'.
func (g *Gatherer) findUnread(ev *lifecycle.Event) {
	parents := map[string]string{}
	var dirs []string
	for _, p := range podsOf(ev) {
		if dir, err := cgroup.PodPath(p.CgroupParent); err == nil {
			dirs = append(dirs, dir)
		}
	}
	find := func(p **lifecycle.Pod) {
		if *p != nil {
			*p = g.findPod(*p, dirs)
			parents[(*p).ID] = (*p).CgroupParent
		}
	}
	for i := range ev.Pods {
		find(&ev.Pods[i])
	}
	find(&ev.Pod)
	if ev.Pod != nil {
		ev.Container = g.findContainer(ev.Container, ev.Pod.CgroupParent)
	}
	for i, ctr := range ev.Containers {
		if ctr != nil {
			ev.Containers[i] = g.findContainer(ctr, parents[ctr.PodID])
		}
	}
}

func (g *Gatherer) findPod(p *lifecycle.Pod, known []string) *lifecycle.Pod {
	if p.Unread == "" || p.CgroupParent != "" || p.UID == "" {
		return p
	}
	dir, found := g.o.Kernel.FindPod(p.UID, known)
	if !found {
		return p
	}
	n := *p
	n.CgroupParent = "/" + dir
	return &n
}

func (g *Gatherer) findContainer(ctr *lifecycle.Container, parent string) *lifecycle.Container {
	if ctr == nil || ctr.Unread == "" || ctr.CgroupsPath != "" {
		return ctr
	}
	above, err := cgroup.PodPath(parent)
	if err != nil {
		return ctr // named when something has to be written there
	}
	dir, found := g.o.Kernel.Find(above, ctr.ID)
	if !found {
		return ctr
	}
	n := *ctr
	n.CgroupsPath = "/" + dir
	return &n
}

// readRecords adds the records of containers that may carry one.
func (g *Gatherer) readRecords(_ Attachment, ev *lifecycle.Event, f *engine.Facts) {
	switch ev.Kind {
	case lifecycle.Synchronize, lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer:
	default:
		return
	}
	for _, s := range subjects(ev) {
		if r, late := g.o.Checkpoint.Record(s.ctr.ID); late {
			put(&f.Records, s.ctr.ID, r)
			continue
		}
		text, stamped := s.ctr.Annotations[intent.RecordKey]
		if !stamped {
			continue
		}
		r, err := g.o.Signer.Read(s.pod.UID, s.ctr.Name, text)
		if err != nil {
			put(&f.Distrusted, s.ctr.ID, lifecycle.Problem{
				Key: intent.RecordKey, Value: intent.Printable(text), Reason: "record ignored: " + err.Error(), Refused: true,
			})
			continue
		}
		put(&f.Records, s.ctr.ID, r)
	}
}

// readCPUs reads what the kernel gives containers of which a record does not say what
// they have by now.
func (g *Gatherer) readCPUs(from Attachment, ev *lifecycle.Event, f *engine.Facts) {
	var asks func(*lifecycle.Container, lifecycle.Record, bool) (kernel, runs bool)
	switch ev.Kind {
	case lifecycle.Synchronize:
		f.Kernel, f.Grants = map[string]string{}, g.o.Checkpoint.Grants()
		asks = ofList(from, ev, f)
	case lifecycle.StartContainer:
		asks = g.ofStart
	default:
		return
	}
	for _, s := range subjects(ev) {
		r, recorded := f.Records[s.ctr.ID]
		kernel, runs := asks(s.ctr, r, recorded)
		if !kernel && !runs {
			continue
		}
		f.Grants = g.o.Checkpoint.Grants()
		dir, err := cgroup.Path(s.pod.CgroupParent, s.ctr.CgroupsPath)
		if err != nil {
			continue // named when something has to be written there
		}
		list, ok := g.o.Kernel.ParentCPUs(dir)
		if ok && kernel {
			put(&f.Kernel, s.ctr.ID, list)
		}
		if ok && runs {
			put(&f.Runs, s.ctr.ID, list)
		}
	}
}

// ofList says of which containers of a Synchronize the CPUs are asked for: those whose
// record is lost, of an attachment whose records only the checkpoint had, and those that
// own CPUs by a record that may be of before a resize. Where a record is not trusted, or
// a container is unread, what all have tells who owned what.
func ofList(from Attachment, ev *lifecycle.Event, f *engine.Facts) func(*lifecycle.Container, lifecycle.Record, bool) (kernel, runs bool) {
	unread := slices.ContainsFunc(ev.Containers, func(ctr *lifecycle.Container) bool { return ctr != nil && ctr.Unread != "" })
	return func(ctr *lifecycle.Container, r lifecycle.Record, recorded bool) (kernel, runs bool) {
		adopts := recorded && !r.Late && r.CPUs != "" || !recorded && !from.Stamps || len(f.Distrusted) > 0
		return adopts && ctr.Unread == "", unread
	}
}

// ofStart says the same of a container that starts: it could not be read before, or
// cannot now.
func (g *Gatherer) ofStart(ctr *lifecycle.Container, r lifecycle.Record, recorded bool) (kernel, runs bool) {
	if recorded && r.Late {
		return false, false
	}
	defer g.o.State.Free()
	known := g.o.State.Hold().Container(ctr.ID)
	runs = ctr.Unread != ""
	return !runs && known != nil && known.Unread != "", runs
}

// readEnded finds pods that own CPUs and have ended unnoticed: some runtimes do not
// tell of the end of pods older than their last restart, but the kubelet removes the
// pod's cgroup. It is looked for only when CPUs are wanted or may be free.
func (g *Gatherer) readEnded(_ Attachment, ev *lifecycle.Event, f *engine.Facts) {
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
