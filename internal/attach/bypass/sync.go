package bypass

import (
	"fmt"
	"path"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// synchronise reports all pods and containers that exist. It watches the cgroup tree before it requests the lists, so
// that it also finds the containers that are created after the lists.
func (s *session) synchronise() error {
	found := s.dirs.scan()
	s.logUnwatched()
	pods, ctrs, err := s.c.DescribeAll(s.ctx)
	if err != nil {
		return fmt.Errorf("synchronise: %w", err)
	}
	known := map[string]*pod{}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, l := range pods {
		p := newPod(l.ID)
		p.lastReported = l
		known[l.ID] = p
		if dir := found[l.ID]; l.CgroupParent == "" && dir != "" {
			l.CgroupParent = "/" + path.Dir(dir)
		}
		ev.Pods = append(ev.Pods, l)
	}
	for _, l := range ctrs {
		c, dir := newCtr(l, found[l.ID]), found[l.ID]
		if c.hasEnded() || !c.running && dir != "" && !s.startWatcher.setupDone(dir) {
			// Do not report a container that has ended. Do not report a container whose cgroup the OCI runtime may
			// still set up, because the agent may not write to such a cgroup. The call of handleNewCgroups below handles
			// this cgroup.
			continue
		}
		c.startReported = c.running
		known[l.PodID].ctrs[c.id] = c
		ev.Containers = append(ev.Containers, c.lastReported)
	}
	s.report(ev)
	s.index.mu.Lock()
	s.index.pods = known
	s.index.mu.Unlock()
	for _, p := range known {
		for _, c := range p.ctrs {
			s.addToIndex(p, c)
			if c.lastReported.Undescribed != "" {
				s.hint(p.id, c.id, askStatus)
			}
		}
		if p.lastReported.Undescribed != "" {
			s.hintPod(p.id)
		}
		if dir, ok := p.dir(); ok {
			s.handleNewCgroups(s.dirs.watchListedPod(dir))
		}
	}
	s.handleNewCgroups(found) // the lists lack the pods and containers that the runtime was creating
	return nil
}

// relist compares the runtime's lists with the index. It makes the pods' workers check the pods and containers that
// differ.
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
	ask, differ := s.index.compareLists(pods, ctrs)
	for _, id := range ask {
		s.hintPod(id)
	}
	for _, l := range differ {
		s.hint(l.Pod, l.ID, askStatus)
	}
}
