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

// The stub ignores a handler with a wrong signature and reports no error, so the
// compiler checks them here.
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

// handling marks the context of a request while a handler answers it.
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
	if s.registerOnly {
		return subscription(nil, p), s.launchedWith(config)
	}
	s.a.runtimeSeen.Store(newLastRuntime(p, s.stub.RegistrationTimeout(), s.stub.RequestTimeout()))
	if err := s.launchedWith(config); err != nil {
		return 0, err
	}
	s.a.enter(StateRegistered, nil)
	return subscription(s.a.o.Handler.Wants(), p), nil
}

// launchedWith passes on the configuration that a runtime stores for a plugin it launches.
func (s *session) launchedWith(config string) error {
	if config == "" || s.a.o.OnConfigure == nil {
		return nil
	}
	err := errors.New("configuration handler panicked")
	s.recoverPanic("OnConfigure", func() { err = s.a.o.OnConfigure(config) })
	if err != nil {
		return fmt.Errorf("configuration from runtime: %w", err)
	}
	return nil
}

// Synchronize passes the runtime's pods and containers to the handler. Its answer has no updates. It answers after
// half of the runtime's timeout even if the handler still runs. A runtime disconnects a plugin that answers late,
// and would do so after each new connection.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	if s.registerOnly {
		return nil, nil
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	peer := s.a.peer()
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
		s.a.o.Log.Warn("the agent answered Synchronize before it had handled it, because handling was slow", logkey.After, limit/2)
	}
	return nil, nil
}

// RunPodSandbox passes the event on.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: podIn(p)})
}

// UpdatePodSandbox passes the event on with the requested resources.
func (s *session) UpdatePodSandbox(ctx context.Context, p *api.PodSandbox, overhead, res *api.LinuxResources) error {
	return s.pod(ctx, lifecycle.Event{
		Kind: lifecycle.UpdatePodSandbox, Pod: podIn(p),
		Overhead: resourcesIn(overhead), Requested: resourcesIn(res),
	})
}

// StopPodSandbox passes the event on.
func (s *session) StopPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: podIn(p)})
}

// RemovePodSandbox passes the event on.
func (s *session) RemovePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	defer s.known.ended(p.GetId())
	return s.pod(ctx, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: podIn(p)})
}

// CreateContainer answers with the adjustment of the container, nil if nothing changes.
func (s *session) CreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer}, p, c)
	if err != nil {
		return nil, nil, err
	}
	adjust, left := s.a.peer().adjustment(ans.Values, c)
	s.reportLeft(ans.Op, c.GetId(), left)
	// Runtimes fail a creation if the answer also updates the container that they create.
	return adjust, s.updates(ans.Op, ans.Others, c.GetId(), true), nil
}

// PostCreateContainer passes on that the runtime has stored the container.
func (s *session) PostCreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostCreateContainer, p, c)
}

// StartContainer passes the event on.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.StartContainer, p, c)
}

// PostStartContainer reports that the container runs. The agent decides nothing at this event, but hook servers may
// need it.
func (s *session) PostStartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	told, ok := s.a.o.Handler.(interface{ Notify(ev lifecycle.Event) })
	if !ok || p == nil || c == nil || s.registerOnly || !s.requests.begin() {
		return nil
	}
	defer s.end()
	ev := lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: podIn(p), Container: containerIn(c)}
	s.a.peer().pod(ev.Pod)
	s.known.complete(ev.Kind, ev.Pod, ev.Container)
	s.recoverPanic(ev.Kind.String(), func() { told.Notify(ev) })
	return nil
}

// PostUpdateContainer reports that the runtime has written an update.
func (s *session) PostUpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostUpdateContainer, p, c)
}

// UpdateContainer answers with our values for the container. The kubelet's request therefore does not overwrite
// them.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, res *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Requested: resourcesIn(res)}, p, c)
	if err != nil {
		return nil, err
	}
	ups := s.updates(ans.Op, ans.Others, c.GetId(), true)
	own, left := s.a.peer().update(c.GetId(), runtimes.Request, ans.Values)
	s.reportLeft(ans.Op, c.GetId(), left)
	if own != nil {
		own.IgnoreFailure = !s.a.o.FailRequest
		ups = append(ups, own)
	}
	return ups, nil
}

// StopContainer passes the event on. The answer may update other containers.
func (s *session) StopContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	ans, err := s.container(ctx, lifecycle.Event{Kind: lifecycle.StopContainer}, p, c)
	if err != nil {
		return nil, err
	}
	return s.updates(ans.Op, ans.Others, c.GetId(), true), nil
}

// RemoveContainer passes the event on.
func (s *session) RemoveContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.RemoveContainer, p, c)
}

func (s *session) pod(ctx context.Context, ev lifecycle.Event) error {
	if ev.Pod == nil {
		s.a.o.Log.Debug("event without pod ignored", logkey.Event, ev.Kind.String())
		return nil
	}
	s.a.peer().pod(ev.Pod)
	_, err := s.handle(ctx, ev)
	return err
}

// container completes a container event and passes it on. If the pod is missing, it uses the pod id of the
// container. If the container is missing, it drops the event.
func (s *session) container(ctx context.Context, ev lifecycle.Event, p *api.PodSandbox, c *api.Container) (conductor.Answer, error) {
	if c == nil {
		s.a.o.Log.Debug("event without container ignored", logkey.Event, ev.Kind.String())
		return conductor.Answer{}, nil
	}
	ev.Container = containerIn(c)
	if ev.Pod = podIn(p); ev.Pod == nil {
		ev.Pod = &lifecycle.Pod{ID: c.GetPodSandboxId()}
	}
	s.a.peer().pod(ev.Pod)
	s.known.complete(ev.Kind, ev.Pod, ev.Container)
	if ev.Container.ID == "" {
		s.a.o.Log.Warn("the runtime sent a container without id and name; the agent decides nothing for it", logkey.Event, ev.Kind.String(), logkey.Pod, ev.Pod.Name)
	}
	return s.handle(ctx, ev)
}

// notify passes on an event whose answer has no values.
func (s *session) notify(ctx context.Context, kind lifecycle.Kind, p *api.PodSandbox, c *api.Container) error {
	_, err := s.container(ctx, lifecycle.Event{Kind: kind}, p, c)
	return err
}

// handle calls the handler. It returns only a Rejection as an error. After a panic or a fault of ours, the answer
// changes nothing.
func (s *session) handle(ctx context.Context, ev lifecycle.Event) (ans conductor.Answer, refusal error) {
	if s.registerOnly || !s.requests.begin() {
		return conductor.Answer{}, nil
	}
	defer s.end()
	s.noteEventBeforeSync(ev.Kind)
	ctx = context.WithValue(ctx, handling{}, true)
	s.recoverPanic(ev.Kind.String(), func() {
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

// updates translates settings of existing containers into one update for each container, because the runtime would
// report a second one as a conflict. It drops settings without an id, and those of the container except.
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
	peer := s.a.peer()
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

// reportLeft logs values that the handler returned although Capabilities excludes them.
func (s *session) reportLeft(op logkey.ID, id string, left []lifecycle.Value) {
	for _, v := range left {
		s.a.o.Log.Warn("NRI cannot carry a decided value", logkey.Op, op, logkey.Container, id,
			logkey.Field, v.Field.String(), logkey.Value, v.String())
	}
}
