package cri

import (
	"context"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// away is the error of a runtime that is not there, or of a context that ended;
// nil for one that is about a single pod or container.
func away(ctx context.Context, err error) error {
	if criclient.Away(ctx, err) {
		return err
	}
	return nil
}

// retry asks about something again that could not be described, once its time has
// come.
func (s *lists) retry(id string, ask func(ctx context.Context) error) {
	if !s.retries.begin(id) {
		return
	}
	s.order.work.Go(func() {
		defer s.retries.end(id)
		connect.RecoverPanic(s.log, "asking again", func() { _ = ask(s.order.ctx) }) // that a runtime is away the comparison says
	})
}

// retryNow has the containers of a pod that can be read now asked about at once.
func (s *lists) retryNow(pod string) {
	if p := s.store.pod(pod); p != nil && p.Unread == "" {
		s.retries.drop(pod)
	}
	s.retries.drop(s.store.containersOf(pod)...)
}

// adoptPod takes in one pod, where it is still there; known is what was listed of one
// that could not be described. The error is that of a runtime that is away.
func (s *lists) adoptPod(ctx context.Context, id string, known *lifecycle.Pod) error {
	p, err := s.client.DescribePod(ctx, id)
	if p == nil {
		return away(ctx, err)
	}
	if s.isNews(logkey.Pod, p.Namespace+"/"+p.Name, id, p.Unread, known != nil) && s.store.pod(id) == known {
		s.store.notePod(p)
		s.retryNow(id)
		s.events.after(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	return nil
}

// adoptContainer takes in one container; known is what was listed of one that could
// not be described. The error is that of a runtime that is away.
func (s *lists) adoptContainer(ctx context.Context, l criclient.Listed, p *lifecycle.Pod, known *lifecycle.Container) error {
	found, err := s.client.DescribeContainer(ctx, l)
	c := found.Container
	if c == nil {
		return away(ctx, err)
	}
	criclient.UnreadWith(c, p)
	if s.isNews(logkey.Container, p.Namespace+"/"+p.Name+"/"+c.Name, l.ID, c.Unread, known != nil) {
		s.order.after(p.ID, func(ctx context.Context) { s.takeIn(ctx, c, p, known) })
	}
	return nil
}

// takeIn notifies of a container of which no call came, or says more of one that could
// not be described, unless something else did meanwhile.
func (s *lists) takeIn(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, known *lifecycle.Container) {
	if now, _ := s.store.container(c.ID); now != known {
		return
	}
	kept, runs := lean(c), c.State == lifecycle.StateRunning
	if known == nil {
		s.store.noteContainer(kept, runs)
	} else {
		s.store.change(c.ID, func(k *ctr) { k.value, k.started = kept, k.started || runs })
	}
	if c.Unread == "" {
		s.retries.drop(c.ID)
	}
	if runs { // else its start notifies
		s.events.notify(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	}
}

// isNews reports whether something can be described that could not be before, or is found
// for the first time, and logs that. What cannot be described is asked about later.
func (s *lists) isNews(what, name, id, unread string, before bool) bool {
	criclient.LogRead(s.log, what, name, unread, before)
	if unread != "" {
		s.retries.later(id)
	}
	return unread == "" || !before
}
