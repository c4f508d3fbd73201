package bypass

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// splitRetries splits the hints that failed. again are the hints to try again, and tries is the highest number of
// tries among them. givenUp are the hints that have had all their tries.
func (p *pod) splitRetries(unfinished pendingChecks) (again, givenUp pendingChecks, tries int) {
	count := func(id string) bool {
		if p.failedAttempts == nil {
			p.failedAttempts = map[string]int{}
		}
		if p.failedAttempts[id]++; p.failedAttempts[id] > maxAttempts {
			delete(p.failedAttempts, id)
			return false
		}
		tries = max(tries, p.failedAttempts[id])
		return true
	}
	if unfinished.sandbox || p.reported == nil {
		if count("") {
			again.sandbox = true
		} else {
			givenUp.sandbox = true
		}
	}
	for _, id := range unfinished.order {
		into := &givenUp
		if p.reported == nil && again.sandbox || p.reported != nil && count(id) {
			into = &again
		}
		into.add(id, unfinished.ctrs[id])
	}
	return again, givenUp, tries
}

// reportFromLists reports a pod and containers from their list entries after the runtime repeatedly could not
// describe them. They run, and the agent must keep them off CPUs that other containers own. The session goes on
// polling the containers that it had reported before.
func (s *session) reportFromLists(p *pod, givenUp pendingChecks, why error) {
	if p.reported == nil {
		now, err := s.c.PodFromList(s.ctx, p.id, why)
		if now == nil || err != nil {
			return
		}
		criclient.LogReadability(s.a.o.Log, logkey.Pod, now.Namespace+"/"+now.Name, now.Undescribed, false)
		s.reportPod(p, now)
	}
	for _, id := range givenUp.order {
		if p.ctrs[id] != nil || p.stopped {
			continue
		}
		now, err := s.c.ContainerFromList(s.ctx, id, why)
		if now == nil || err != nil {
			continue
		}
		criclient.LogReadability(s.a.o.Log, logkey.Container, now.Name, now.Undescribed, false)
		dir := s.index.resolvingDir(id)
		if above, ok := p.dir(); ok && dir == "" {
			dir, _ = s.a.o.Tree.FindContainer(above, id)
		}
		s.reportNew(p, newCtr(criclient.Container{Container: now}, dir))
	}
}

// rereadPod reads a pod again that the runtime could not describe before.
func (s *session) rereadPod(p *pod) error {
	now, err := s.c.Pod(s.ctx, p.id)
	if criclient.NotFound(err) {
		return nil // checkSandbox reports that, too
	}
	if err != nil {
		return err
	}
	now.CgroupParent = cmp.Or(now.CgroupParent, p.reported.CgroupParent)
	criclient.LogReadability(s.a.o.Log, logkey.Pod, now.Namespace+"/"+now.Name, "", true)
	s.reportPod(p, now)
	for _, id := range sortedIDs(p.ctrs) {
		s.hint(p.id, id, askStatus)
	}
	return nil
}

// reread reads a container again that the runtime could not describe before.
func (s *session) reread(p *pod, c *ctr) error {
	now, err := s.c.Container(s.ctx, c.id, p.id)
	if criclient.NotFound(err) {
		return nil // checkStatus reports its end
	}
	if err != nil {
		return err
	}
	n := newCtr(now, c.dir)
	if n.ended || n.neverReported || c.hasEnded() {
		return nil
	}
	criclient.LogReadability(s.a.o.Log, logkey.Container, p.reported.Namespace+"/"+p.reported.Name+"/"+n.reported.Name, "", true)
	s.copies.Lock()
	c.copySeen, c.inStatus, c.neverReported = n.copySeen, n.inStatus, false
	s.copies.Unlock()
	c.reporting.Lock()
	c.reported = n.reported
	c.reporting.Unlock()
	c.running = c.running || n.running
	s.addToIndex(p, c)
	if !c.running {
		return nil // its start reports it
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.started = true
	s.report(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p.reported, Container: c.reported})
	return nil
}
