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

// synchronise tells of all that exists. The tree is watched before anything is
// listed, so that nothing falls between.
func (s *session) synchronise() error {
	found := s.places.scan()
	s.tellBlind()
	pods, containers, err := s.list()
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
		ev.Pods = append(ev.Pods, p.told)
		for _, id := range sortedIDs(p.ctrs) {
			ev.Containers = append(ev.Containers, p.ctrs[id].told)
		}
	}
	s.tell(ev)
	s.mu.Lock()
	s.pods = known
	s.mu.Unlock()
	for _, p := range known {
		for _, c := range p.ctrs {
			s.keep(p, c)
			if c.told.Unread != "" {
				s.hint(p.id, c.id, askStatus)
			}
		}
		if p.told.Unread != "" {
			s.hintPod(p.id)
		}
		if dir, ok := p.dir(); ok {
			s.appeared(s.places.learn(dir))
		}
	}
	s.appeared(found) // those that are being made are unknown, and met
	return nil
}

// list asks for what there is: pods that are ready, and containers that have
// not ended.
func (s *session) list() ([]*cri.PodSandbox, []*cri.Container, error) {
	pods, err := ask(s.ctx, s.c.calls.ListPodSandbox, "list pods", &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return nil, nil, err
	}
	containers, err := ask(s.ctx, s.c.calls.ListContainers, "list containers", &cri.ListContainersRequest{})
	if err != nil {
		return nil, nil, err
	}
	live := containers.Containers[:0]
	for _, c := range containers.Containers {
		if c.State != cri.ContainerState_CONTAINER_EXITED {
			live = append(live, c)
		}
	}
	return pods.Items, live, nil
}

// known asks about each pod and container of the lists. What is gone by then is
// left out; what the runtime cannot describe is as it is listed, and is asked about
// again.
func (s *session) known(pods []*cri.PodSandbox, containers []*cri.Container, found map[string]string) (map[string]*pod, error) {
	var hung patience
	group, _ := errgroup.WithContext(s.ctx)
	group.SetLimit(listing)
	told := describe(s, group, pods,
		func(l *cri.PodSandbox) (*pod, error) {
			return hungOf(&hung, func() (*pod, error) { return s.askPod(l.Id, found) })
		},
		func(l *cri.PodSandbox, why error) *pod { return s.podUnread(l, found, why) })
	ctrs := describe(s, group, containers,
		func(l *cri.Container) (*ctr, error) {
			return hungOf(&hung, func() (*ctr, error) { return s.askContainer(l.Id, l.PodSandboxId, found[l.Id]) })
		},
		func(l *cri.Container, why error) *ctr { return s.ctrUnread(l, found[l.Id], why) })
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

// describe asks about each of a list in a group; what the runtime cannot describe is
// as unread makes it. The result is complete when the group has ended.
func describe[L, T any](s *session, group *errgroup.Group, list []L, ask func(L) (*T, error), unread func(L, error) *T) []*T {
	all := make([]*T, len(list))
	for i, l := range list {
		group.Go(func() (err error) {
			if all[i], err = ask(l); err != nil && !s.over(err) {
				all[i], err = unread(l, err), nil
			}
			return err
		})
	}
	return all
}

// addKnown adds a container to its pod. Its cgroup is at dir, "" where none was found.
func (s *session) addKnown(all map[string]*pod, c *ctr, dir string) {
	p := all[c.told.PodID]
	if p == nil {
		s.a.o.Log.Debug("container without a pod left out", logkey.Container, c.id)
		return
	}
	if c.told.Unread == "" && p.told.Unread != "" {
		c.told.Unread = "of its pod: " + p.told.Unread
	}
	if !c.running && dir != "" && !s.isMade(dir) {
		return // its cgroup must be left alone, and it is told of by itself
	}
	c.started = c.running
	p.ctrs[c.id] = c
}

// isMade reports whether the OCI runtime is done with a cgroup. The container may
// be called created for ever: of a start that the runtime did not live to see.
func (s *session) isMade(dir string) bool {
	at, _ := (&fresh{s: s, dir: dir}).progress()
	return at == ready
}

// relist compares the runtime's lists with what was told, and hints at the
// differences.
func (s *session) relist() {
	pods, containers, err := s.list()
	if err != nil {
		if lost(err) {
			s.fail(err)
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
	ask, differ := s.compare(listed, states, sandboxes)
	for _, id := range ask {
		s.hintPod(id)
	}
	for id, sandbox := range differ {
		s.hint(sandbox, id, askStatus)
	}
}

// compare returns the pods to ask about, and the containers with their pods.
func (s *session) compare(listed map[string]bool, states map[string]cri.ContainerState, sandboxes map[string]string) ([]string, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []string
	for id := range listed {
		if p := s.pods[id]; p == nil || p.lacks {
			pods = append(pods, id)
		}
	}
	for id := range s.pods {
		if !listed[id] {
			pods = append(pods, id)
		}
	}
	differ := map[string]string{}
	for id, k := range s.kept {
		if _, there := states[id]; !there {
			differ[id] = k.p.id
		}
	}
	for id, state := range states {
		k, known := s.kept[id]
		if !known || state == cri.ContainerState_CONTAINER_RUNNING && !k.p.runs[id] {
			differ[id] = sandboxes[id]
		}
	}
	return pods, differ
}
