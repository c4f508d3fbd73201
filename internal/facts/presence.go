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
// cgroup. A missing cgroup alone does not end a pod, because the tree may be the wrong one: cgroup.root may be wrong,
// or the tree may be that of another cgroup namespace. A pod ended only if its cgroup existed before, or if the runtime
// reported the end.
type Presence struct {
	tree     *cgroup.Tree
	state    State
	now      func() time.Time
	interval time.Duration // between two calls of FindCgroups

	mu          sync.Mutex      // guards all below; locked after the state is held
	seenCgroups map[string]bool // the cgroups that this agent has seen, by sandbox or container id
	// absentSince has the time since when a cgroup is missing, by id. It has running containers, their pods, and pods
	// that own CPUs or CDI devices.
	absentSince map[string]time.Time
	// missingCgroups are the directories of cgroups that two calls of FindCgroups did not find, by id. At the first
	// call, a start or an end may have been in progress. The map is replaced and never changed.
	missingCgroups map[string]string
}

// NewPresence returns an empty Presence for a tree.
func NewPresence(tree *cgroup.Tree, state State, now func() time.Time, every time.Duration) *Presence {
	return &Presence{tree: tree, state: state, now: now, interval: every, seenCgroups: map[string]bool{}, absentSince: map[string]time.Time{}}
}

// NoteCgroup notes that the cgroup of a pod was seen, if it exists.
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

// EndedPods returns pods without a cgroup whose end the runtime reported, or whose cgroup this agent has seen. It
// leaves out other pods, because their cgroups may be created later, or the tree may be the wrong one.
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
// or CDI devices, by id.
func (p *Presence) MissingCgroups() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missingCgroups
}

// FindCgroups looks for cgroups that were not seen yet: the cgroups of pods that own CPUs or CDI devices, of running
// containers, and of their pods.
func (p *Presence) FindCgroups() {
	wanted := p.missingDirs()
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

// missingDirs returns the directories to look for, by sandbox or container id. It forgets pods and containers that
// have ended.
func (p *Presence) missingDirs() map[string]string {
	s := p.state.Hold()
	defer p.state.Free()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seenCgroups, func(id string, _ bool) bool { return s.Container(id) == nil && s.Pod(id) == nil })
	out := map[string]string{}
	want := func(id, dir string, err error) { // a path that is not valid is reported elsewhere
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
