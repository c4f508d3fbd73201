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

// The stub ignores a handler with a wrong signature and reports no error. The compiler therefore checks the signatures
// here.
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

// inHandlerKey is the key of a context value. The context of a handler has this value, so that Update can detect a call
// by a handler.
type inHandlerKey struct{}

// Configure answers the runtime's first request with the events to which the agent subscribes.
func (s *session) Configure(_ context.Context, config, runtime, release string) (api.EventMask, error) {
	s.mu.Lock()
	aborted := s.aborted
	s.mu.Unlock()
	if aborted {
		return 0, errAborted
	}
	p := newPeer(runtime, release, s.stub.RuntimeNRIVersion())
	if s.registerOnly {
		return subscription(nil, p), s.passConfig(config)
	}
	s.a.lastRuntime.Store(newLastRuntime(p, s.stub.RegistrationTimeout(), s.stub.RequestTimeout()))
	if err := s.passConfig(config); err != nil {
		return 0, err
	}
	s.a.enter(StateRegistered, nil)
	return subscription(s.a.o.Handler.Wants(), p), nil
}

// passConfig passes the configuration that a runtime stores for a launched plugin to OnConfigure.
func (s *session) passConfig(config string) error {
	if config == "" || s.a.o.OnConfigure == nil {
		return nil
	}
	err := errors.New("the agent panicked while it read the configuration")
	s.recoverPanic("OnConfigure", func() { err = s.a.o.OnConfigure(config) })
	if err != nil {
		return fmt.Errorf("read the configuration that the runtime sent: %w", err)
	}
	return nil
}

// Synchronize passes the runtime's pods and containers to the handler. The answer has no updates. If the handler has
// not returned after half of the runtime's timeout, Synchronize answers without waiting for the handler. If it waited
// longer, the runtime would disconnect the agent, and the same would happen again after each reconnection.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	if s.registerOnly {
		return nil, nil
	}
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	s.mu.Lock()
	s.syncReceived = true
	s.mu.Unlock()
	peer := s.a.peer()
	for _, p := range pods {
		if p != nil {
			pod := convertPod(p)
			peer.setPodName(pod)
			ev.Pods = append(ev.Pods, pod)
		}
	}
	for _, c := range ctrs {
		if c != nil {
			ctr := convertContainer(c)
			s.identities.setIdentity(ev.Kind, &lifecycle.Pod{}, ctr)
			ev.Containers = append(ev.Containers, ctr)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.handle(s.ctx, ev); err != nil {
			s.a.o.Log.Warn("a policy refused the event Synchronize; the agent ignores this, because a plugin cannot refuse this event", logkey.Err, err)
		}
		s.synced.raise()
	}()
	limit := s.a.Capabilities().AnswerTimeout
	t := time.NewTimer(limit / 2)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		s.a.o.Log.Warn("the agent answered Synchronize before it had handled all pods and containers, because the handling took too long", logkey.After, limit/2)
	}
	return nil, nil
}

// RunPodSandbox passes the event to the handler.
func (s *session) RunPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.handlePod(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: convertPod(p)})
}

// UpdatePodSandbox passes the event to the handler, with the requested resources.
func (s *session) UpdatePodSandbox(ctx context.Context, p *api.PodSandbox, overhead, res *api.LinuxResources) error {
	return s.handlePod(ctx, lifecycle.Event{
		Kind: lifecycle.UpdatePodSandbox, Pod: convertPod(p),
		Overhead: convertResources(overhead), Requested: convertResources(res),
	})
}

// StopPodSandbox passes the event to the handler.
func (s *session) StopPodSandbox(ctx context.Context, p *api.PodSandbox) error {
	return s.handlePod(ctx, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: convertPod(p)})
}

// RemovePodSandbox passes the event to the handler. It then deletes the ids that the agent made up for the pod's
// containers.
func (s *session) RemovePodSandbox(ctx context.Context, p *api.PodSandbox) error {
	defer s.identities.forgetPod(p.GetId())
	return s.handlePod(ctx, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: convertPod(p)})
}

// CreateContainer answers with the adjustment of the container, or with nil if the agent changes nothing in it.
func (s *session) CreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	ans, err := s.handleContainer(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer}, p, c)
	if err != nil {
		return nil, nil, err
	}
	adjust, unsupported := s.a.peer().toAdjustment(ans.Values, c)
	s.logUnsupported(ans.Op, c.GetId(), unsupported)
	// Runtimes fail a creation if the answer also updates the container that they create.
	return adjust, s.toUpdates(ans.Op, ans.Others, c.GetId(), true), nil
}

// PostCreateContainer notifies the handler that the runtime has stored the container.
func (s *session) PostCreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostCreateContainer, p, c)
}

// StartContainer passes the event to the handler.
func (s *session) StartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.StartContainer, p, c)
}

// PostStartContainer tells the handler that the container runs. The agent decides nothing at this event, but hook
// servers may need the event.
func (s *session) PostStartContainer(_ context.Context, p *api.PodSandbox, c *api.Container) error {
	notifier, ok := s.a.o.Handler.(interface{ Notify(ev lifecycle.Event) })
	if !ok || p == nil || c == nil || s.registerOnly || !s.requests.begin() {
		return nil
	}
	defer s.endRequest()
	ev := lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: convertPod(p), Container: convertContainer(c)}
	s.a.peer().setPodName(ev.Pod)
	s.identities.setIdentity(ev.Kind, ev.Pod, ev.Container)
	s.recoverPanic(ev.Kind.String(), func() { notifier.Notify(ev) })
	return nil
}

// PostUpdateContainer tells the handler that the runtime has written an update.
func (s *session) PostUpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.PostUpdateContainer, p, c)
}

// UpdateContainer answers with the agent's values for the container, so that the kubelet's request does not overwrite
// them.
func (s *session) UpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, res *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	ans, err := s.handleContainer(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Requested: convertResources(res)}, p, c)
	if err != nil {
		return nil, err
	}
	ups := s.toUpdates(ans.Op, ans.Others, c.GetId(), true)
	own, unsupported := s.a.peer().toUpdate(c.GetId(), runtimes.KubeletUpdate, ans.Values)
	s.logUnsupported(ans.Op, c.GetId(), unsupported)
	if own != nil {
		own.IgnoreFailure = !s.a.o.FailRequest
		ups = append(ups, own)
	}
	return ups, nil
}

// StopContainer passes the event to the handler. The answer may update other containers.
func (s *session) StopContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	ans, err := s.handleContainer(ctx, lifecycle.Event{Kind: lifecycle.StopContainer}, p, c)
	if err != nil {
		return nil, err
	}
	return s.toUpdates(ans.Op, ans.Others, c.GetId(), true), nil
}

// RemoveContainer passes the event to the handler.
func (s *session) RemoveContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return s.notify(ctx, lifecycle.RemoveContainer, p, c)
}

// handlePod passes a pod event to the handler. It drops an event without a pod.
func (s *session) handlePod(ctx context.Context, ev lifecycle.Event) error {
	if ev.Pod == nil {
		s.a.o.Log.Debug("the agent ignores an event that has no pod", logkey.Event, ev.Kind.String())
		return nil
	}
	s.a.peer().setPodName(ev.Pod)
	_, err := s.handle(ctx, ev)
	return err
}

// handleContainer adds the container and the pod to an event, and passes the event to the handler. If the runtime sent
// no pod, the event's pod has only the id. handleContainer drops an event without a container.
func (s *session) handleContainer(ctx context.Context, ev lifecycle.Event, p *api.PodSandbox, c *api.Container) (conductor.Answer, error) {
	if c == nil {
		s.a.o.Log.Debug("the agent ignores an event that has no container", logkey.Event, ev.Kind.String())
		return conductor.Answer{}, nil
	}
	ev.Container = convertContainer(c)
	if ev.Pod = convertPod(p); ev.Pod == nil {
		ev.Pod = &lifecycle.Pod{ID: c.GetPodSandboxId()}
	}
	s.a.peer().setPodName(ev.Pod)
	s.identities.setIdentity(ev.Kind, ev.Pod, ev.Container)
	if ev.Container.ID == "" {
		s.a.o.Log.Warn("the runtime sent a container without id and name; the agent decides nothing for it", logkey.Event, ev.Kind.String(), logkey.Pod, ev.Pod.Name)
	}
	return s.handle(ctx, ev)
}

// notify passes a container event to the handler. The answer to the runtime has no values at this kind of event.
func (s *session) notify(ctx context.Context, kind lifecycle.Kind, p *api.PodSandbox, c *api.Container) error {
	_, err := s.handleContainer(ctx, lifecycle.Event{Kind: kind}, p, c)
	return err
}

// handle passes an event to the handler. It returns only a conductor.Rejection as an error. After a panic or another
// error of the handler, the answer changes nothing.
func (s *session) handle(ctx context.Context, ev lifecycle.Event) (ans conductor.Answer, refusal error) {
	if s.registerOnly || !s.requests.begin() {
		return conductor.Answer{}, nil
	}
	defer s.endRequest()
	s.noteEventBeforeSync(ev.Kind)
	ctx = context.WithValue(ctx, inHandlerKey{}, true)
	s.recoverPanic(ev.Kind.String(), func() {
		got, err := s.a.o.Handler.Handle(ctx, s.a, ev)
		switch rejected, refused := errors.AsType[*conductor.Rejection](err); {
		case refused:
			refusal = rejected
		case err != nil:
			s.a.o.Log.Error("the agent could not decide about an event; the answer to the runtime changes nothing", logkey.Op, got.Op, logkey.Event, ev.Kind.String(), logkey.Err, err)
		default:
			ans = got
		}
	})
	return ans, refusal
}

// toUpdates converts settings of existing containers to one update for each container, because the runtime would report
// a second update of a container as a conflict. It drops and logs settings in two cases: the runtime has not sent the
// container's id yet, or the container's id is the parameter except.
func (s *session) toUpdates(op logkey.ID, what []conductor.Settings, except string, ignoreFailure bool) []*api.ContainerUpdate {
	var out []*api.ContainerUpdate
	merged := make(map[string][]lifecycle.Value, len(what))
	var order []string
	for _, w := range what {
		id := s.identities.runtimeID(w.Container)
		if id == "" || id == except {
			s.logUnsupported(op, w.Container, w.Values)
			continue
		}
		if _, again := merged[id]; !again {
			order = append(order, id)
		}
		merged[id] = append(merged[id], w.Values...)
	}
	peer := s.a.peer()
	for _, id := range order {
		u, unsupported := peer.toUpdate(id, runtimes.AgentUpdate, merged[id])
		s.logUnsupported(op, id, unsupported)
		if u != nil {
			u.IgnoreFailure = ignoreFailure
			out = append(out, u)
		}
	}
	return out
}

// logUnsupported logs values that the handler has decided and that the agent cannot send to the runtime.
func (s *session) logUnsupported(op logkey.ID, id string, unsupported []lifecycle.Value) {
	for _, v := range unsupported {
		s.a.o.Log.Warn("the agent cannot send a decided value to the runtime through NRI", logkey.Op, op, logkey.Container, id,
			logkey.Field, v.Field.String(), logkey.Value, v.String())
	}
}
