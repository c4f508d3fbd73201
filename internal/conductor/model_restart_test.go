package conductor_test

import (
	"maps"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// restart replaces the agent by a new one, which gets the runtime's list. No container may
// move.
func (mo *model) restart() {
	before := mo.cpusets()
	granted := mo.grants()
	owned := mo.mustStay()
	mo.boot()
	if owned != nil {
		// A container that gets CPUs while it runs cannot have had them from its first
		// instruction; it has them after the Synchronize. That includes one in a pool with
		// exactly its assigned CPUs.
		mo.taking = maps.Clone(before)
		maps.DeleteFunc(mo.taking, func(dir, _ string) bool { return !owned[dir] })
	}
	ev := mo.everything()
	if mo.hideDescriptions != nil {
		mo.hideDescriptions(&ev)
	}
	mo.handle(ev)
	mo.taking = nil
	for dir, cpus := range mo.cpusets() {
		if before[dir] != cpus && (owned == nil || owned[dir]) {
			mo.wrong("I4: a restart moved %s from %s to %s", dir, before[dir], cpus)
		}
	}
	for g := range granted {
		if !mo.grants()[g] && mo.alive(g) && (owned == nil || mo.inKernel(g, owned)) {
			mo.wrong("I4: a restart lost the grant %s", g)
		}
	}
	mo.checkExclusive("after a restart")
	mo.checkQuotas("after a restart")
}

// inKernel reports whether one of the given cgroups shows a grant.
func (mo *model) inKernel(grant string, dirs map[string]bool) bool {
	for _, c := range mo.live() {
		if dirs[c.dir()] && grant == "default/"+c.pod.Name+"/"+c.Name+" "+canonical(c.pod.asked) {
			return true
		}
	}
	return false
}

// everything is the runtime's Synchronize.
func (mo *model) everything() lifecycle.Event {
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, p := range mo.pods {
		if p.stopped {
			continue
		}
		ev.Pods = append(ev.Pods, clone(&p.Pod))
		for _, c := range p.ctrs {
			if !c.ended {
				ev.Containers = append(ev.Containers, clone(&c.Container))
			}
		}
	}
	return ev
}

// mustStay are the cgroups that a restart may not move; nil for all. Only the checkpoint knows
// the CPUs of pods without a live container, and which containers were refused CPUs. Without
// it, only containers that own CPUs in the kernel are sure to keep them.
func (mo *model) mustStay() map[string]bool {
	if mo.hideDescriptions != nil && mo.unsaved {
		return mo.owners() // only the runtime has later requests of a pool's containers, so pools may change
	}
	if !mo.faults.forgetAsked || !mo.beside() {
		return nil
	}
	owned := map[string]bool{}
	for _, c := range mo.live() {
		if c.started && mo.owns(c) && mo.effective(c) == canonical(c.pod.asked) {
			owned[c.dir()] = true
		}
	}
	return owned
}

// alive reports whether a grant's container lives: only those grants must survive.
func (mo *model) alive(grant string) bool {
	for _, c := range mo.live() {
		if strings.HasPrefix(grant, "default/"+c.pod.Name+"/"+c.Name+" ") {
			return true
		}
	}
	return false
}
