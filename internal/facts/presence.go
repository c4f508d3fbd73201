package facts

import (
	"maps"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Presence records which cgroups of pods and containers this agent has seen, and which containers run without a
// cgroup. A missing cgroup alone does not prove that a pod has ended. The agent may look into the wrong cgroup tree:
// cgroup.root may be wrong, or the tree may belong to another cgroup namespace. A pod has ended only if its cgroup
// existed before, or if the runtime reported the end.
type Presence struct {
	tree     *cgroup.Tree
	state    State
	now      func() time.Time
	interval time.Duration // the time between two calls of FindCgroups

	mu          sync.Mutex      // guards the fields below; a caller that needs both locks holds the state first
	seenCgroups map[string]bool // the cgroups that this agent has seen, by sandbox or container id
	// absentSince has the time of the first FindCgroups that did not find a cgroup, by sandbox or container id. It has
	// only running containers, their pods, and pods that own CPUs or CDI devices.
	absentSince map[string]time.Time
	// missingCgroups has the directories of cgroups that two calls of FindCgroups did not find, by sandbox or container
	// id. One call is not enough, because a start or an end may be in progress. The map is replaced and never changed.
	missingCgroups map[string]string
}

// NewPresence returns a Presence for a cgroup tree. The new Presence has seen no cgroup yet. The parameter every is the
// time between two calls of FindCgroups.
func NewPresence(tree *cgroup.Tree, state State, now func() time.Time, every time.Duration) *Presence {
	return &Presence{tree: tree, state: state, now: now, interval: every, seenCgroups: map[string]bool{}, absentSince: map[string]time.Time{}}
}

// NoteCgroup checks whether the cgroup of a pod exists. If so, it notes that this cgroup was seen.
func (p *Presence) NoteCgroup(pod *lifecycle.Pod) {
	p.mu.Lock()
	known := p.seenCgroups[pod.ID]
	p.mu.Unlock()
	dir, err := cgroup.PodPath(pod.CgroupParent)
	if known || err != nil || !p.tree.Has(dir) {
		return
	}
	p.mu.Lock()
	p.seenCgroups[pod.ID] = true
	p.mu.Unlock()
}

// CgroupVanished reports whether a pod's cgroup existed and no longer exists.
func (p *Presence) CgroupVanished(id, parent string) bool {
	dir, err := cgroup.PodPath(parent)
	if err != nil || !p.tree.IsMissing(dir) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seenCgroups[id]
}

// EndedPods returns the pods that have ended: they have no cgroup, and the runtime reported their end or this agent has
// seen their cgroup. Other pods without a cgroup are left out: their cgroups are possibly created later, or the tree is
// possibly the wrong one.
func (p *Presence) EndedPods() (gone []*lifecycle.Pod) {
	all := allPods(p.state.Hold())
	p.state.Free()
	for _, pod := range all {
		dir, err := cgroup.PodPath(pod.Pod.CgroupParent)
		switch {
		case err != nil:
		case pod.Stopped && !p.tree.Has(dir), p.CgroupVanished(pod.Pod.ID, pod.Pod.CgroupParent):
			gone = append(gone, pod.Pod)
		default:
			p.NoteCgroup(pod.Pod)
		}
	}
	return gone
}

// MissingCgroups returns the missing cgroup directories of running containers, of their pods, and of pods that own CPUs
// or CDI devices, by sandbox or container id.
func (p *Presence) MissingCgroups() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missingCgroups
}

// FindCgroups looks for cgroups that this agent has not seen yet: the cgroups of running containers, of the pods of
// these containers, and of pods that own CPUs or CDI devices.
func (p *Presence) FindCgroups() {
	wanted := p.unseenDirs()
	found := map[string]bool{}
	for id, dir := range wanted {
		found[id] = p.tree.Has(dir)
	}
	now, missing := p.now(), map[string]string{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, dir := range wanted {
		since, absent := p.absentSince[id]
		switch {
		case found[id]:
			p.seenCgroups[id] = true
			delete(p.absentSince, id)
		case !absent:
			p.absentSince[id] = now
		case now.Sub(since) >= p.interval:
			missing[id] = dir
		}
	}
	p.missingCgroups = missing
}

// unseenDirs returns the directories of the cgroups that FindCgroups looks for, by sandbox or container id. It also
// deletes what the Presence has stored about pods and containers that have ended.
func (p *Presence) unseenDirs() map[string]string {
	s := p.state.Hold()
	defer p.state.Free()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seenCgroups, func(id string, _ bool) bool { return s.Container(id) == nil && s.Pod(id) == nil })
	out := map[string]string{}
	want := func(id, dir string, err error) { // skips a path that is not valid; other code reports the error
		if err == nil && !p.seenCgroups[id] {
			out[id] = dir
		}
	}
	wantPod := func(pod *engine.Pod) {
		dir, err := cgroup.PodPath(pod.Pod.CgroupParent)
		want(pod.Pod.ID, dir, err)
	}
	for _, pod := range s.Owners() {
		wantPod(pod)
	}
	for _, id := range s.Containers() {
		ctr, parent := s.Container(id), ""
		if p.seenCgroups[id] || !ctr.Runs() {
			continue
		}
		if pod := s.Pod(ctr.PodID); pod != nil {
			parent = pod.Pod.CgroupParent
			wantPod(pod)
		}
		dir, err := cgroup.Path(parent, ctr.CgroupsPath)
		want(id, dir, err)
	}
	maps.DeleteFunc(p.absentSince, func(id string, _ time.Time) bool {
		_, wanted := out[id]
		return !wanted
	})
	return out
}
