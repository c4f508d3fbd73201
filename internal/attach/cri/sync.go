package cri

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// listSynchroniser updates the store from the runtime's lists.
type listSynchroniser struct {
	*sharedState

	unannounced unannouncedObjects // only the goroutine that calls compare uses it
	freeMemory  func()             // returns memory to the operating system
}

// synchronise rebuilds the store from the runtime's lists and verbose statuses, and from the decisions for the OCI
// runtime wrapper. After this, the relay holds calls for decisions.
func (s *listSynchroniser) synchronise(ctx context.Context) error {
	if err := s.link.checkAdmission(); err != nil {
		return err
	}
	before := s.store.serial.Add(1)
	runtime, err := s.client.About(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	pods, ctrs, err := s.client.DescribeAll(ctx)
	if err != nil {
		return err
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize, Pods: pods}
	for _, c := range ctrs {
		s.wrapper.addAppliedValues(c.Container)
		c.Compact()
		ev.Containers = append(ev.Containers, c.Container)
	}
	s.wrapper.removeUnlisted(ctrs)
	s.link.noteRuntime(runtime)
	s.store.reset(ev, before)
	s.events.notify(ctx, ev)
	s.store.replacePods(ev.Pods)
	s.link.containersKnown.Store(true)
	s.freeMemory() // DescribeAll has read all verbose statuses, and little of them is stored
	return nil
}

// compare requests the runtime's lists. It reports the pods and containers that ended without a call from the kubelet.
// It stores the pods and containers whose creation the attachment did not see as a held call.
func (s *listSynchroniser) compare(ctx context.Context) error {
	before := s.store.serial.Add(1)
	pods, ctrs, err := s.client.List(ctx)
	if err != nil {
		return err
	}
	s.endUnlisted(before, pods, ctrs)
	s.retries.pauses.GC()
	return s.adopt(ctx, pods, ctrs)
}

// endUnlisted reports the end of the stored pods and containers that the lists do not have, and of the containers that
// the list shows as exited. It skips pods and containers that were stored after the lists were requested. before is
// store.serial at that time.
func (s *listSynchroniser) endUnlisted(before uint64, pods, ctrs []criclient.ListItem) {
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
		case c.addedSerial > before:
		case !there:
			s.events.endContainer(c.snapshot, s.store.podOfLocked(c), lifecycle.RemoveContainer)
		case state == criclient.StateExited && !c.ended:
			s.events.endContainer(c.snapshot, s.store.podOfLocked(c), lifecycle.StopContainer)
		}
	}
	for id, p := range s.store.pods {
		if p.addedSerial <= before && !isListed[id] {
			s.events.endPod(id, lifecycle.RemovePodSandbox)
		}
	}
}

// adopt stores the pods and running containers that no call announced: the kubelet gave up the call, or the relay
// forwarded the call without a decision. For a pod or container that the runtime could not describe before, adopt sends
// another request on a separate goroutine. A slow answer to this request does not delay adopt.
func (s *listSynchroniser) adopt(ctx context.Context, pods, ctrs []criclient.ListItem) error {
	s.unannounced.begin()
	var lost error
	for _, l := range pods {
		switch known := s.store.pod(l.ID); {
		case l.State != criclient.StateReady:
		case known == nil && s.unannounced.isOverdue(l.ID):
			lost = errors.Join(lost, s.adoptPod(ctx, l.ID, nil))
		case known != nil && known.Undescribed != "":
			s.retry(l.ID, func(ctx context.Context) error { return s.adoptPod(ctx, l.ID, known) })
		}
	}
	for _, l := range ctrs {
		p := s.store.pod(l.Pod)
		switch known, _ := s.store.container(l.ID); {
		case p == nil || l.State == criclient.StateExited:
		case known == nil && l.State == criclient.StateRunning && s.unannounced.isOverdue(l.ID):
			lost = errors.Join(lost, s.adoptContainer(ctx, l, p, nil))
		case known != nil && known.Undescribed != "" && p.Undescribed == "":
			s.retry(l.ID, func(ctx context.Context) error { return s.adoptContainer(ctx, l, p, known) })
		}
	}
	return lost
}

// find returns a container and its pod. If the store does not have the container, find requests it from the runtime. It
// returns nil if the runtime does not have the container either, or if the store does not have the container's pod.
func (s *listSynchroniser) find(ctx context.Context, id string) (*lifecycle.Container, *lifecycle.Pod) {
	c, p := s.store.container(id)
	if c != nil && c.Undescribed != "" && p.Undescribed == "" {
		if full, err := s.client.Container(ctx, id, c.PodID); err == nil && full.Undescribed == "" {
			s.queues.awaitQueue(ctx, p.ID)
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
	s.queues.awaitQueue(ctx, p.ID) // queued functions may complete the container or end it
	return s.store.container(id)
}
