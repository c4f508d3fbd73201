package bypass

import (
	"fmt"
	"path"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// synchronise reports everything that exists. It watches the tree before it lists, so
// that nothing is missed in between.
func (s *session) synchronise() error {
	found := s.dirs.scan()
	s.logUnwatched()
	pods, ctrs, err := s.c.All(s.ctx)
	if err != nil {
		return fmt.Errorf("synchronise: %w", err)
	}
	known := map[string]*pod{}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, l := range pods {
		p := newPod(l.ID)
		p.reported = l
		known[l.ID] = p
		if dir := found[l.ID]; l.CgroupParent == "" && dir != "" {
			l.CgroupParent = "/" + path.Dir(dir)
		}
		ev.Pods = append(ev.Pods, l)
	}
	for _, l := range ctrs {
		c, dir := newCtr(l, found[l.ID]), found[l.ID]
		if c.hasEnded() || !c.running && dir != "" && !s.startWatcher.setupDone(dir) {
			// The container has ended, or the OCI runtime may still set up its cgroup, so that no other program
			// may write to it yet. In the second case, the call of cgroupsCreated below handles the cgroup.
			continue
		}
		c.started = c.running
		known[l.PodID].ctrs[c.id] = c
		ev.Containers = append(ev.Containers, c.reported)
	}
	s.report(ev)
	s.index.mu.Lock()
	s.index.pods = known
	s.index.mu.Unlock()
	for _, p := range known {
		for _, c := range p.ctrs {
			s.addToIndex(p, c)
			if c.reported.Undescribed != "" {
				s.hint(p.id, c.id, askStatus)
			}
		}
		if p.reported.Undescribed != "" {
			s.hintPod(p.id)
		}
		if dir, ok := p.dir(); ok {
			s.cgroupsCreated(s.dirs.watchListedPod(dir))
		}
	}
	s.cgroupsCreated(found) // the list does not have the pods that the runtime creates now
	return nil
}

// relist compares the runtime's lists with what this session has reported, and gives hints about the differences.
func (s *session) relist() {
	pods, ctrs, err := s.c.List(s.ctx)
	if err != nil {
		if criclient.ConnectionFailed(s.ctx, err) {
			s.tasks.fail(err)
		} else {
			s.a.o.Log.Warn("the agent cannot list the runtime's pods and containers", logkey.Err, err)
		}
		return
	}
	ask, differ := s.index.compare(pods, ctrs)
	for _, id := range ask {
		s.hintPod(id)
	}
	for _, l := range differ {
		s.hint(l.Pod, l.ID, askStatus)
	}
}
