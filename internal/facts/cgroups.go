package facts

import (
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readCgroups finds the cgroups of the event's pods, and reads the CPUs that these cgroups allow. The allowed CPUs can
// change: a cgroup loses CPUs that go offline, and only some cgroups get these CPUs back when the CPUs come online.
func (g *Gatherer) readCgroups(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	allowed := func(p *lifecycle.Pod) {
		dir, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			return // the agent reports this error when it must write a value to this cgroup
		}
		if list, ok := g.o.AllowedCPUs(dir); ok {
			put(&f.ParentCPUs, p.ID, list)
		}
	}
	switch ev.Kind {
	case lifecycle.Configure:
		for _, p := range g.podsWhere(allPods, anyPod) {
			allowed(p)
		}
	case lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StartContainer, lifecycle.UpdateContainer:
		g.findUndescribedCgroups(ev)
		eachPod(ev, func(p **lifecycle.Pod) {
			g.o.Presence.NoteCgroup(*p)
			if ev.Container == nil { // at a container's event, the pod's CPUs are known from an earlier event
				allowed(*p)
			}
		})
	}
}

// findUndescribedCgroups finds the cgroups of pods and containers that the runtime lists, but whose status the runtime
// cannot return. The agent needs these cgroups to read and change values of the containers. The function writes the
// paths into copies of the pods and containers, because the attachment also uses the original objects.
func (g *Gatherer) findUndescribedCgroups(ev *lifecycle.Event) {
	var dirs []string
	eachPod(ev, func(p **lifecycle.Pod) {
		if dir, err := cgroup.PodPath((*p).CgroupParent); err == nil {
			dirs = append(dirs, dir)
		}
	})
	eachPod(ev, func(p **lifecycle.Pod) {
		if (*p).Undescribed == "" || (*p).CgroupParent != "" || (*p).UID == "" {
			return
		}
		if dir, found := g.o.Tree.FindPod((*p).UID, dirs); found {
			n := **p
			n.CgroupParent = "/" + dir
			*p = &n
		}
	})
	eachContainer(ev, func(p *lifecycle.Pod, ctr **lifecycle.Container) {
		if (*ctr).Undescribed == "" || (*ctr).CgroupsPath != "" {
			return
		}
		above, err := cgroup.PodPath(p.CgroupParent)
		if err != nil {
			return // the agent reports this error when it must write a value to this cgroup
		}
		if dir, found := g.o.Tree.FindContainer(above, (*ctr).ID); found {
			n := **ctr
			n.CgroupsPath = "/" + dir
			*ctr = &n
		}
	})
}
