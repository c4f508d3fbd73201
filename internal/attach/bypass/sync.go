package bypass

import (
	"fmt"
	"path"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// synchronise reports all that exists. The tree is watched before anything is
// listed, so that nothing falls between.
func (s *session) synchronise() error {
	found := s.places.scan()
	s.logBlind()
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
		if c.hasEnded() || !c.running && dir != "" && !s.starts.made(dir) {
			continue // its cgroup must be left alone, and it is reported by itself
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
			s.keep(p, c)
			if c.reported.Undescribed != "" {
				s.hint(p.id, c.id, askStatus)
			}
		}
		if p.reported.Undescribed != "" {
			s.hintPod(p.id)
		}
		if dir, ok := p.dir(); ok {
			s.appeared(s.places.learn(dir))
		}
	}
	s.appeared(found) // pods that are being created are not in the list yet
	return nil
}

// relist compares the runtime's lists with what was reported, and hints at the
// differences.
func (s *session) relist() {
	pods, ctrs, err := s.c.List(s.ctx)
	if err != nil {
		if criclient.Away(s.ctx, err) {
			s.tasks.fail(err)
		} else {
			s.a.o.Log.Warn("the runtime's lists cannot be read", logkey.Err, err)
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
