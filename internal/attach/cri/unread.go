package cri

import (
	"context"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// connectionError returns err if the runtime does not answer or the context has ended. It returns nil if err is about
// a single pod or container.
func connectionError(ctx context.Context, err error) error {
	if criclient.ConnectionFailed(ctx, err) {
		return err
	}
	return nil
}

// retry sends another request about a pod or container that the runtime could not describe, if the retry pause is over.
// It calls ask on another goroutine.
func (s *listSynchroniser) retry(id string, ask func(ctx context.Context) error) {
	if !s.retries.begin(id) {
		return
	}
	s.queues.work.Go(func() {
		defer s.retries.end(id)
		connect.RecoverPanic(s.log, "asking the runtime again about a pod or container", func() { _ = ask(s.queues.ctx) }) // no error is lost: compare reports a runtime that does not answer
	})
}

// retryNow ends the retry pauses of a pod's containers, and of the pod itself if the runtime can describe the pod. The
// next comparison of lists then requests these objects again.
func (s *listSynchroniser) retryNow(pod string) {
	if p := s.store.pod(pod); p != nil && p.Undescribed == "" {
		s.retries.endPause(pod)
	}
	s.retries.endPause(s.store.containersOf(pod)...)
}

// adoptPod stores one pod if the pod still exists. If the runtime could not describe the pod before, known is the
// stored pod, which has only the fields of the list entry. Otherwise known is nil. adoptPod returns an error only if
// the runtime does not answer.
func (s *listSynchroniser) adoptPod(ctx context.Context, id string, known *lifecycle.Pod) error {
	p, err := s.client.DescribePod(ctx, id)
	if p == nil {
		return connectionError(ctx, err)
	}
	if s.isNewOrReadable(logkey.Pod, p.Namespace+"/"+p.Name, id, p.Undescribed, known != nil) && s.store.pod(id) == known {
		s.store.notePod(p)
		s.retryNow(id)
		s.events.queueAfterOthers(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	return nil
}

// adoptContainer stores one container. If the runtime could not describe the container before, known is the stored
// container, which has only the fields of the list entry. Otherwise known is nil. adoptContainer returns an error only
// if the runtime does not answer.
func (s *listSynchroniser) adoptContainer(ctx context.Context, l criclient.ListItem, p *lifecycle.Pod, known *lifecycle.Container) error {
	found, err := s.client.DescribeContainer(ctx, l)
	c := found.Container
	if c == nil {
		return connectionError(ctx, err)
	}
	criclient.InheritUndescribed(c, p)
	if s.isNewOrReadable(logkey.Container, p.Namespace+"/"+p.Name+"/"+c.Name, l.ID, c.Undescribed, known != nil) {
		s.queues.enqueue(p.ID, func(ctx context.Context) { s.addContainer(ctx, c, p, known) })
	}
	return nil
}

// addContainer stores a container that the attachment found in the runtime's list, and not by a call of the kubelet. If
// known is not nil, c is instead the new description of known, a stored container that the runtime could not describe
// before. It does nothing if the store no longer has known, because a call has changed the container in the meantime.
func (s *listSynchroniser) addContainer(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, known *lifecycle.Container) {
	if now, _ := s.store.container(c.ID); now != known {
		return
	}
	kept, runs := compactCopy(c), c.State == lifecycle.StateRunning
	if known == nil {
		s.store.noteContainer(kept, runs)
	} else {
		s.store.change(c.ID, func(k *ctr) { k.snapshot, k.started = kept, k.started || runs })
	}
	if c.Undescribed == "" {
		s.retries.endPause(c.ID)
	}
	if runs { // the StartContainer call reports any other container
		s.events.notify(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	}
}

// isNewOrReadable reports whether a pod or container is new, or the runtime can describe it. undescribed is why the
// runtime cannot describe the object, or "". wasUndescribed means that the runtime could not describe the object
// before. isNewOrReadable logs each change. If the runtime cannot describe the object, it schedules another request.
func (s *listSynchroniser) isNewOrReadable(key, name, id, undescribed string, wasUndescribed bool) bool {
	criclient.LogReadability(s.log, key, name, undescribed, wasUndescribed)
	if undescribed != "" {
		s.retries.schedule(id)
	}
	return undescribed == "" || !wasUndescribed
}
