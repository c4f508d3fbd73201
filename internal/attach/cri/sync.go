package cri

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// lists updates the store from the runtime's lists.
type lists struct {
	*shared

	unannounced unannounced // only the goroutine that compares uses it
	freeMemory  func()
}

// synchronise rebuilds the store from the runtime's lists and verbose statuses, and from the decisions for the OCI
// runtime wrapper. From then on the attachment holds calls.
func (s *lists) synchronise(ctx context.Context) error {
	if err := s.link.checkAdmission(); err != nil {
		return err
	}
	before := s.store.serial.Add(1)
	runtime, err := s.client.About(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	pods, ctrs, err := s.client.All(ctx)
	if err != nil {
		return err
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize, Pods: pods}
	for _, c := range ctrs {
		s.wrapper.describe(c.Container)
		c.Compact()
		ev.Containers = append(ev.Containers, c.Container)
	}
	s.wrapper.removeUnlisted(ctrs)
	s.link.noteRuntime(runtime)
	s.store.reset(ev, before)
	s.events.notify(ctx, ev)
	s.store.replacePods(ev.Pods)
	s.link.containersKnown.Store(true)
	s.freeMemory() // we have read all verbose statuses, and keep little of them
	return nil
}

// compare reports pods and containers that ended without a call from the kubelet. It also adopts those that no call
// announced.
func (s *lists) compare(ctx context.Context) error {
	before := s.store.serial.Add(1)
	pods, ctrs, err := s.client.List(ctx)
	if err != nil {
		return err
	}
	s.endUnlisted(before, pods, ctrs)
	s.retries.pauses.GC()
	return s.adopt(ctx, pods, ctrs)
}

// endUnlisted reports the end of pods and containers that a list does not have, or shows as exited. It skips those
// that were stored after the list was requested.
func (s *lists) endUnlisted(before uint64, pods, ctrs []criclient.Listed) {
	states := make(map[string]int32, len(ctrs))
	for _, l := range ctrs {
		states[l.ID] = l.State
	}
	isListed := make(map[string]bool, len(pods))
	for _, l := range pods {
		isListed[l.ID] = true
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for id, c := range s.store.ctrs {
		switch state, there := states[id]; {
		case c.addedAt > before:
		case !there:
			s.events.endContainer(c.value, s.store.podOfLocked(c), lifecycle.RemoveContainer)
		case state == criclient.Exited && !c.ended:
			s.events.endContainer(c.value, s.store.podOfLocked(c), lifecycle.StopContainer)
		}
	}
	for id, p := range s.store.pods {
		if p.addedAt <= before && !isListed[id] {
			s.events.endPod(id, lifecycle.RemovePodSandbox)
		}
	}
}

// adopt stores pods and running containers that no call announced: the kubelet gave up the call, or the relay
// forwarded it without a decision. An object that the runtime cannot describe does not delay the others. For the
// objects that the runtime could not describe before, adopt asks again, in parallel.
func (s *lists) adopt(ctx context.Context, pods, ctrs []criclient.Listed) error {
	s.unannounced.begin()
	var lost error
	for _, l := range pods {
		switch known := s.store.pod(l.ID); {
		case l.State != criclient.Ready:
		case known == nil && s.unannounced.isOverdue(l.ID):
			lost = errors.Join(lost, s.adoptPod(ctx, l.ID, nil))
		case known != nil && known.Undescribed != "":
			s.retry(l.ID, func(ctx context.Context) error { return s.adoptPod(ctx, l.ID, known) })
		}
	}
	for _, l := range ctrs {
		p := s.store.pod(l.Pod)
		switch known, _ := s.store.container(l.ID); {
		case p == nil || l.State == criclient.Exited:
		case known == nil && l.State == criclient.Running && s.unannounced.isOverdue(l.ID):
			lost = errors.Join(lost, s.adoptContainer(ctx, l, p, nil))
		case known != nil && known.Undescribed != "" && p.Undescribed == "":
			s.retry(l.ID, func(ctx context.Context) error { return s.adoptContainer(ctx, l, p, known) })
		}
	}
	return lost
}

// find returns a container from the store, or else from the runtime. It returns nil if neither has the container, or
// if the store does not have the container's pod.
func (s *lists) find(ctx context.Context, id string) (*lifecycle.Container, *lifecycle.Pod) {
	c, p := s.store.container(id)
	if c != nil && c.Undescribed != "" && p.Undescribed == "" {
		if full, err := s.client.Container(ctx, id, c.PodID); err == nil && full.Undescribed == "" {
			s.queues.await(ctx, p.ID)
			s.addContainer(ctx, full.Container, p, c)
		}
	}
	if c == nil {
		full, err := s.client.Container(ctx, id, "")
		if err != nil || full.PodID == "" || s.store.pod(full.PodID) == nil {
			return nil, nil
		}
		s.store.noteContainer(full.Container, full.State == lifecycle.StateRunning)
		if c, p = s.store.container(id); c == nil {
			return nil, nil
		}
	}
	s.queues.await(ctx, p.ID) // queued functions may complete the container or end it
	return s.store.container(id)
}
