package bypass

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// splitRetries splits the checks that failed. again are the checks to try again, and tries is the highest number of
// failed attempts of a check in again. givenUp are the checks that have failed more than maxAttempts times.
func (p *pod) splitRetries(unfinished pendingChecks) (again, givenUp pendingChecks, tries int) {
	mayRetry := func(id string) bool { // counts the failed attempt
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
	if unfinished.sandbox || p.lastReported == nil {
		if mayRetry("") {
			again.sandbox = true
		} else {
			givenUp.sandbox = true
		}
	}
	for _, id := range unfinished.order {
		into := &givenUp
		if p.lastReported == nil && again.sandbox || p.lastReported != nil && mayRetry(id) {
			into = &again
		}
		into.add(id, unfinished.ctrs[id])
	}
	return again, givenUp, tries
}

// reportFromLists reports a pod and containers with the fields of the runtime's lists, after the runtime repeatedly
// could not describe them. The containers run, so the agent must keep them off the CPUs that other containers own.
// Containers that the session has already reported need no new report: the session continues to poll them.
func (s *session) reportFromLists(p *pod, givenUp pendingChecks, why error) {
	if p.lastReported == nil {
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
		return nil // checkSandbox reports the pod's end
	}
	if err != nil {
		return err
	}
	now.CgroupParent = cmp.Or(now.CgroupParent, p.lastReported.CgroupParent)
	criclient.LogReadability(s.a.o.Log, logkey.Pod, now.Namespace+"/"+now.Name, "", true)
	s.reportPod(p, now)
	for _, id := range sortedIDs(p.ctrs) {
		s.hint(p.id, id, askStatus)
	}
	return nil
}

// rereadContainer reads a container again that the runtime could not describe before.
func (s *session) rereadContainer(p *pod, c *ctr) error {
	now, err := s.c.Container(s.ctx, c.id, p.id)
	if criclient.NotFound(err) {
		return nil // checkStatus reports the container's end
	}
	if err != nil {
		return err
	}
	n := newCtr(now, c.dir)
	if n.ended || n.resourcesUnknown || c.hasEnded() {
		return nil
	}
	criclient.LogReadability(s.a.o.Log, logkey.Container, p.lastReported.Namespace+"/"+p.lastReported.Name+"/"+n.lastReported.Name, "", true)
	s.copiesMu.Lock()
	c.copySeen, c.resourcesInStatus, c.resourcesUnknown = n.copySeen, n.resourcesInStatus, false
	s.copiesMu.Unlock()
	c.reporting.Lock()
	c.lastReported = n.lastReported
	c.reporting.Unlock()
	c.running = c.running || n.running
	s.addToIndex(p, c)
	if !c.running {
		return nil // the event of the container's start will report the new description
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.startReported = true
	s.report(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p.lastReported, Container: c.lastReported})
	return nil
}
