package facts

import (
	"maps"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Presence records which cgroups of pods and containers this agent has seen, and which
// containers run without one. A missing cgroup alone does not end a pod, because the tree may
// be the wrong one (cgroup.root, another cgroup namespace's). The cgroup must have existed
// before, or the runtime must report the end.
type Presence struct {
	tree     *cgroup.Tree
	state    State
	now      func() time.Time
	interval time.Duration // between two calls of Find

	mu   sync.Mutex      // guards all below; locked after the state is held
	seen map[string]bool // by sandbox or container id
	// absent are running containers without a cgroup, their pods, and owners, with the time since when the cgroup
	// is missing.
	absent map[string]time.Time
	// missing are the directories of cgroups that two calls of Find did not find, by id. At the first call, a start
	// or an end may have been in progress. The map is replaced and never changed.
	missing map[string]string
}

// NewPresence returns an empty Presence for a tree.
func NewPresence(tree *cgroup.Tree, state State, now func() time.Time, every time.Duration) *Presence {
	return &Presence{tree: tree, state: state, now: now, interval: every, seen: map[string]bool{}, absent: map[string]time.Time{}}
}

// NoteSeen notes that the cgroup of a pod was seen, if it exists.
func (p *Presence) NoteSeen(pod *lifecycle.Pod) {
	p.mu.Lock()
	known := p.seen[pod.ID]
	p.mu.Unlock()
	dir, err := cgroup.PodPath(pod.CgroupParent)
	if known || err != nil || !p.tree.Has(dir) {
		return
	}
	p.mu.Lock()
	p.seen[pod.ID] = true
	p.mu.Unlock()
}

// Vanished reports whether a pod's cgroup existed and no longer exists.
func (p *Presence) Vanished(id, parent string) bool {
	dir, err := cgroup.PodPath(parent)
	if err != nil || !p.tree.IsMissing(dir) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id]
}

// Ended returns pods without a cgroup whose end the runtime reported, or whose cgroup this agent has seen. It
// leaves out other pods, because their cgroups may be created later, and the tree may be the wrong one.
func (p *Presence) Ended() (gone []*lifecycle.Pod) {
	all := allPods(p.state.Hold())
	p.state.Free()
	for _, pod := range all {
		dir, err := cgroup.PodPath(pod.Pod.CgroupParent)
		switch {
		case err != nil:
		case pod.Stopped && !p.tree.Has(dir), p.Vanished(pod.Pod.ID, pod.Pod.CgroupParent):
			gone = append(gone, pod.Pod)
		default:
			p.NoteSeen(pod.Pod)
		}
	}
	return gone
}

// MissingCgroups returns the missing cgroup directories of running containers, of their pods, and of pods that own CPUs
// or CDI devices, by id.
func (p *Presence) MissingCgroups() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.missing
}

// Find looks for cgroups that were not seen yet: those of pods that own CPUs or CDI devices, of running containers, and
// of their pods.
func (p *Presence) Find() {
	wanted := p.missingDirs()
	found := map[string]bool{}
	for id, dir := range wanted {
		found[id] = p.tree.Has(dir)
	}
	now, missing := p.now(), map[string]string{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, dir := range wanted {
		since, absent := p.absent[id]
		switch {
		case found[id]:
			p.seen[id] = true
			delete(p.absent, id)
		case !absent:
			p.absent[id] = now
		case now.Sub(since) >= p.interval:
			missing[id] = dir
		}
	}
	p.missing = missing
}

// missingDirs returns the directories to look for, by sandbox or container id. It forgets pods and containers that
// have ended.
func (p *Presence) missingDirs() map[string]string {
	s := p.state.Hold()
	defer p.state.Free()
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seen, func(id string, _ bool) bool { return s.Container(id) == nil && s.Pod(id) == nil })
	out := map[string]string{}
	want := func(id, dir string, err error) { // a path that is not valid is reported elsewhere
		if err == nil && !p.seen[id] {
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
		if p.seen[id] || !ctr.Runs() {
			continue
		}
		if pod := s.Pod(ctr.PodID); pod != nil {
			parent = pod.Pod.CgroupParent
			wantPod(pod)
		}
		dir, err := cgroup.Path(parent, ctr.CgroupsPath)
		want(id, dir, err)
	}
	maps.DeleteFunc(p.absent, func(id string, _ time.Time) bool {
		_, wanted := out[id]
		return !wanted
	})
	return out
}
