package bypass

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// listing is how many statuses are asked for at once at the start.
const listing = 4

// synchronise reports all that exists. The tree is watched before anything is
// listed, so that nothing falls between.
func (s *session) synchronise() error {
	found := s.places.scan()
	s.logBlind()
	pods, containers, err := s.c.list()
	if err != nil {
		return err
	}
	known, err := s.known(pods, containers, found)
	if err != nil {
		return err
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, l := range pods {
		p := known[l.Id]
		if p == nil {
			continue
		}
		ev.Pods = append(ev.Pods, p.reported)
		for _, id := range sortedIDs(p.ctrs) {
			ev.Containers = append(ev.Containers, p.ctrs[id].reported)
		}
	}
	s.report(ev)
	s.index.mu.Lock()
	s.index.pods = known
	s.index.mu.Unlock()
	for _, p := range known {
		for _, c := range p.ctrs {
			s.keep(p, c)
			if c.reported.Unread != "" {
				s.hint(p.id, c.id, askStatus)
			}
		}
		if p.reported.Unread != "" {
			s.hintPod(p.id)
		}
		if dir, ok := p.dir(); ok {
			s.appeared(s.places.learn(dir))
		}
	}
	s.appeared(found) // those that are being made are unknown, and met
	return nil
}

// known asks about each pod and container of the lists. What is gone by then is
// left out; what the runtime cannot describe is as it is listed, and is asked about
// again.
func (s *session) known(pods []*cri.PodSandbox, containers []*cri.Container, found map[string]string) (map[string]*pod, error) {
	group, _ := errgroup.WithContext(s.ctx)
	group.SetLimit(listing)
	q := &survey{client: s.c, group: group}
	told := describe(q, pods,
		func(l *cri.PodSandbox) (*pod, error) { return q.askPod(l.Id, found) },
		func(l *cri.PodSandbox, why error) *pod { return q.podUnread(l, found, why) })
	ctrs := describe(q, containers,
		func(l *cri.Container) (*ctr, error) { return q.askContainer(l.Id, l.PodSandboxId, found[l.Id]) },
		func(l *cri.Container, why error) *ctr { return q.ctrUnread(l, found[l.Id], why) })
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("synchronise: %w", err)
	}
	all := map[string]*pod{}
	for _, p := range told {
		if p != nil && !p.stopped {
			all[p.id] = p
		}
	}
	for _, c := range ctrs {
		if c != nil && !c.hasEnded() {
			s.addKnown(all, c, found[c.id])
		}
	}
	return all, nil
}

// addKnown adds a container to its pod. Its cgroup is at dir, "" where none was found.
func (s *session) addKnown(all map[string]*pod, c *ctr, dir string) {
	p := all[c.reported.PodID]
	if p == nil {
		s.a.o.Log.Debug("container without a pod left out", logkey.Container, c.id)
		return
	}
	if c.reported.Unread == "" && p.reported.Unread != "" {
		c.reported.Unread = "of its pod: " + p.reported.Unread
	}
	if !c.running && dir != "" && !s.starts.made(dir) {
		return // its cgroup must be left alone, and it is reported by itself
	}
	c.started = c.running
	p.ctrs[c.id] = c
}

// relist compares the runtime's lists with what was reported, and hints at the
// differences.
func (s *session) relist() {
	pods, containers, err := s.c.list()
	if err != nil {
		if lost(err) {
			s.tasks.fail(err)
		} else if s.ctx.Err() == nil {
			s.a.o.Log.Warn("the runtime's lists cannot be read", logkey.Err, err)
		}
		return
	}
	listed := map[string]bool{}
	for _, p := range pods {
		listed[p.Id] = true
	}
	states := map[string]cri.ContainerState{}
	sandboxes := map[string]string{}
	for _, c := range containers {
		states[c.Id], sandboxes[c.Id] = c.State, c.PodSandboxId
	}
	ask, differ := s.index.compare(listed, states, sandboxes)
	for _, id := range ask {
		s.hintPod(id)
	}
	for id, sandbox := range differ {
		s.hint(sandbox, id, askStatus)
	}
}
