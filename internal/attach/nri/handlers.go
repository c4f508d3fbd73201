package nri

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// The stub registers a handler whose signature is off silently never.
var (
	_ stub.ConfigureInterface           = (*session)(nil)
	_ stub.SynchronizeInterface         = (*session)(nil)
	_ stub.RunPodInterface              = (*session)(nil)
	_ stub.UpdatePodInterface           = (*session)(nil)
	_ stub.StopPodInterface             = (*session)(nil)
	_ stub.RemovePodInterface           = (*session)(nil)
	_ stub.CreateContainerInterface     = (*session)(nil)
	_ stub.PostCreateContainerInterface = (*session)(nil)
	_ stub.StartContainerInterface      = (*session)(nil)
	_ stub.PostStartContainerInterface  = (*session)(nil)
	_ stub.UpdateContainerInterface     = (*session)(nil)
	_ stub.PostUpdateContainerInterface = (*session)(nil)
	_ stub.StopContainerInterface       = (*session)(nil)
	_ stub.RemoveContainerInterface     = (*session)(nil)
)

// handling marks the context of an event being answered.
type handling struct{}

// Configure answers the runtime's first request with the events we want.
func (s *session) Configure(_ context.Context, config, runtime, release string) (api.EventMask, error) {
	s.mu.Lock()
	aborted := s.aborted
	s.mu.Unlock()
	if aborted {
		return 0, errAborted
	}
	p := newPeer(runtime, release, s.stub.RuntimeNRIVersion())
	if s.mute {
		return subscription(nil, p), s.launchedWith(config)
	}
	s.a.met.Store(newMet(p, s.stub.RegistrationTimeout(), s.stub.RequestTimeout()))
	if err := s.launchedWith(config); err != nil {
		return 0, err
	}
	s.a.enter(StateRegistered, nil)
	return subscription(s.a.o.Handler.Wants(), p), nil
}

// launchedWith takes the configuration that a runtime keeps for a plugin it starts.
func (s *session) launchedWith(config string) error {
	if config == "" || s.a.o.OnConfigure == nil {
		return nil
	}
	err := errors.New("configuration handler panicked")
	s.contain("OnConfigure", func() { err = s.a.o.OnConfigure(config) })
	if err != nil {
		return fmt.Errorf("configuration from runtime: %w", err)
	}
	return nil
}

// Synchronize hands the runtime's pods and containers on. It answers without
// updates, and after half the time the runtime allows even if the handler
// is not done: a slow answer would have us dropped, repeatedly.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	if s.mute {
		return nil, nil
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	peer := s.a.about()
	for _, p := range pods {
		if p != nil {
			pod := podIn(p)
			peer.pod(pod)
			ev.Pods = append(ev.Pods, pod)
		}
	}
	for _, c := range ctrs {
		if c != nil {
			ctr := containerIn(c)
			s.known.complete(ev.Kind, &lifecycle.Pod{}, ctr)
			ev.Containers = append(ev.Containers, ctr)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.handle(s.ctx, ev); err != nil {
			s.a.o.Log.Warn("synchronise cannot be rejected", logkey.Err, err)
		}
		s.synced.raise()
	}()
	limit := s.a.Capabilities().AnswersWithin
	t := time.NewTimer(limit / 2)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		s.a.o.Log.Warn("synchronise is slow, answered before it was done", logkey.After, limit/2)
	}
	return nil, nil
}

// RunPodSandbox relays the event.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: podIn(p)})
}

// UpdatePodSandbox relays the event with the resources asked for.
func (s *session) UpdatePodSandbox(ctx context.Context, p *api.PodSandbox, overhead, res *api.LinuxResources) error {
	return s.pod(ctx, lifecycle.Event{
		Kind: lifecycle.UpdatePodSandbox, Pod: podIn(p),
		Overhead: resourcesIn(overhead), Requested: resourcesIn(res),
	})
}

// StopPodSandbox relays the event.
func (s *session) StopPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: podIn(p)})
}

// RemovePodSandbox relays the event.
func (s *session) RemovePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	defer s.known.ended(p.GetId())
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: podIn(p)})
}

// CreateContainer answers with the adjustment of the container, nil where
// there is nothing to change.
func (s *session) CreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer}, p, c)
	if err != nil {
		return nil, nil, err
	}
	adjust, left := s.a.about().adjustment(ans.Values, c)
	s.reportLeft(ans.Op, c.GetId(), left)
	// Runtimes fail a creation that also asks to update what it creates.
	return adjust, s.updates(ans.Op, ans.Others, c.GetId(), true), nil
}

// PostCreateContainer handles the event that the runtime knows the container.
func (s *session) PostCreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostCreateContainer, p, c)
}

// StartContainer relays the event.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.StartContainer, p, c)
}

// PostStartContainer reports that the container runs. Nothing is decided about
// that; hook servers may want to know.
func (s *session) PostStartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	told, ok := s.a.o.Handler.(interface{ Notify(ev lifecycle.Event) })
	if !ok || p == nil || c == nil || s.mute || !s.requests.begin() {
		return nil
	}
	defer s.end()
	ev := lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: podIn(p), Container: containerIn(c)}
	s.a.about().pod(ev.Pod)
	s.known.complete(ev.Kind, ev.Pod, ev.Container)
	s.contain(ev.Kind.String(), func() { told.Notify(ev) })
	return nil
}

// PostUpdateContainer reports that the runtime has written an update.
func (s *session) PostUpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostUpdateContainer, p, c)
}

// UpdateContainer answers with our values for the container asserted again, so
// that what was asked for does not overwrite them.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, res *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Requested: resourcesIn(res)}, p, c)
	if err != nil {
		return nil, err
	}
	ups := s.updates(ans.Op, ans.Others, c.GetId(), true)
	own, left := s.a.about().update(c.GetId(), runtimes.Request, ans.Values)
	s.reportLeft(ans.Op, c.GetId(), left)
	if own != nil {
		own.IgnoreFailure = !s.a.o.FailRequest
		ups = append(ups, own)
	}
	return ups, nil
}

// StopContainer relays the event; others may be updated in the answer.
func (s *session) StopContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.StopContainer}, p, c)
	if err != nil {
		return nil, err
	}
	return s.updates(ans.Op, ans.Others, c.GetId(), true), nil
}

// RemoveContainer relays the event.
func (s *session) RemoveContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.RemoveContainer, p, c)
}

func (s *session) pod(ctx context.Context, ev lifecycle.Event) error {
	if ev.Pod == nil {
		s.a.o.Log.Debug("event without pod ignored", logkey.Event, ev.Kind.String())
		return nil
	}
	s.a.about().pod(ev.Pod)
	_, err := s.handle(ctx, ev)
	return err
}

// container completes and relays a container event. For a missing pod it
// uses the pod id that the container names; without a container there is no event.
func (s *session) container(ctx context.Context, ev lifecycle.Event, p *api.PodSandbox, c *api.Container) (conductor.Answer, error) {
	if c == nil {
		s.a.o.Log.Debug("event without container ignored", logkey.Event, ev.Kind.String())
		return conductor.Answer{}, nil
	}
	ev.Container = containerIn(c)
	if ev.Pod = podIn(p); ev.Pod == nil {
		ev.Pod = &lifecycle.Pod{ID: c.GetPodSandboxId()}
	}
	s.a.about().pod(ev.Pod)
	s.known.complete(ev.Kind, ev.Pod, ev.Container)
	if ev.Container.ID == "" {
		s.a.o.Log.Warn("nothing can be decided for a container without id and name", logkey.Event, ev.Kind.String(), logkey.Pod, ev.Pod.Name)
	}
	return s.handle(ctx, ev)
}

// notify relays an event that has no answer.
func (s *session) notify(ctx context.Context, kind lifecycle.Kind, p *api.PodSandbox, c *api.Container) error {
	_, err := s.container(ctx, lifecycle.Event{Kind: kind}, p, c)
	return err
}

// handle asks the handler. Only a policy's no comes out as an error: a panic
// or a fault of ours is answered with no change.
func (s *session) handle(ctx context.Context, ev lifecycle.Event) (ans conductor.Answer, refusal error) {
	if s.mute || !s.requests.begin() {
		return conductor.Answer{}, nil
	}
	defer s.end()
	s.works(ev.Kind)
	ctx = context.WithValue(ctx, handling{}, true)
	s.contain(ev.Kind.String(), func() {
		got, err := s.a.o.Handler.Handle(ctx, s.a, ev)
		var rejected *conductor.Rejection
		switch {
		case errors.As(err, &rejected):
			refusal = rejected
		case err != nil:
			s.a.o.Log.Error("event answered with no change", logkey.Op, got.Op, logkey.Event, ev.Kind.String(), logkey.Err, err)
		default:
			ans = got
		}
	})
	return ans, refusal
}

// updates translates settings of existing containers, one update for each:
// a second for the same container would be a conflict with ourselves. Settings
// without an id, or of the container except, cannot be sent.
func (s *session) updates(op logkey.ID, what []conductor.Settings, except string, ignoreFailure bool) []*api.ContainerUpdate {
	var out []*api.ContainerUpdate
	merged := make(map[string][]lifecycle.Value, len(what))
	var order []string
	for _, w := range what {
		id := s.known.runtimeID(w.Container)
		if id == "" || id == except {
			s.reportLeft(op, w.Container, w.Values)
			continue
		}
		if _, again := merged[id]; !again {
			order = append(order, id)
		}
		merged[id] = append(merged[id], w.Values...)
	}
	peer := s.a.about()
	for _, id := range order {
		u, left := peer.update(id, runtimes.Push, merged[id])
		s.reportLeft(op, id, left)
		if u != nil {
			u.IgnoreFailure = ignoreFailure
			out = append(out, u)
		}
	}
	return out
}

// reportLeft reports values that were handed to us though we declare that we
// cannot carry them.
func (s *session) reportLeft(op logkey.ID, id string, left []lifecycle.Value) {
	for _, v := range left {
		s.a.o.Log.Warn("value not carried by nri", logkey.Op, op, logkey.Container, id,
			logkey.Field, v.Field.String(), logkey.Value, v.String())
	}
}
