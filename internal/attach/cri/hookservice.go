package cri

import (
	"context"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sleep"
)

// hookService is the attachment as proxies see it.
type hookService struct {
	hooks.UnimplementedRuntimeHookServiceServer
	*parts

	mu       sync.Mutex                         // guards all below
	creating map[attemptOf]*lifecycle.Container // decided, and without an id yet
	sandbox  map[string]string                  // ready ones, by their pods' UID
}

// attemptOf names a container that has no id.
type attemptOf struct{ pod, name string }

// intercept keeps a panic from taking the agent down; the proxy gets an error.
func (f *hookService) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !connect.RecoverPanic(f.log, info.FullMethod, func() { resp, err = handler(ctx, req) }) {
		return nil, status.Error(codes.Internal, "trimtab: deciding failed")
	}
	return resp, err
}

// ready is an error until it is known what runs.
func (f *hookService) ready() error {
	if !f.link.known.Load() {
		return status.Error(codes.Unavailable, "trimtab: it is not known yet what runs")
	}
	return nil
}

// aside reports whether another agent decides: then answers change nothing.
func (f *hookService) aside() bool { return f.link.standby.Load() && !f.link.known.Load() }

// podFor is the pod as the runtime knows it; the proxy reports no sandbox's id.
func (f *hookService) podFor(ctx context.Context, m *hooks.PodSandboxMetadata) (*lifecycle.Pod, error) {
	uid := m.GetUid()
	f.mu.Lock()
	id := f.sandbox[uid]
	f.mu.Unlock()
	if p := f.store.pod(id); p != nil && p.Unread == "" && id != "" {
		f.order.await(ctx, id)
		return p, nil
	}
	l, err := f.client.SandboxOf(ctx, uid)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, status.Errorf(codes.NotFound, "trimtab: the runtime has no ready sandbox of pod %s/%s (uid %q)", m.GetNamespace(), m.GetName(), uid)
	}
	p := f.store.pod(l.Id)
	if p == nil || p.Unread != "" {
		if p, err = f.client.Pod(ctx, l.Id); err != nil {
			return nil, err
		}
		f.store.notePod(p)
		f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	f.mu.Lock()
	f.sandbox[uid] = l.Id
	f.mu.Unlock()
	return p, nil
}

// PreRunPodSandboxHook answers with what was asked, and what hook servers of our
// own want of the pod.
func (f *hookService) PreRunPodSandboxHook(ctx context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	f.mu.Lock()
	delete(f.sandbox, r.GetPodMeta().GetUid()) // another is to come
	f.mu.Unlock()
	resp := echoPod(r)
	if f.aside() {
		return resp, nil
	}
	m := r.GetPodMeta()
	want, err := f.events.beforePod(ctx, &lifecycle.Pod{
		Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(), Labels: r.Labels, Annotations: r.Annotations,
		CgroupParent: r.CgroupParent, RuntimeHandler: r.RuntimeHandler,
	})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	resp.Labels, resp.Annotations = criclient.WithPairs(resp.Labels, want.Labels), criclient.WithPairs(resp.Annotations, want.Annotations)
	return resp, nil
}

// forget forgets a sandbox that went: the proxy may have been away when it did.
func (f *hookService) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.creating, func(k attemptOf, _ *lifecycle.Container) bool { return k.pod == id })
	maps.DeleteFunc(f.sandbox, func(_, sandbox string) bool { return sandbox == id })
}

// PostStopPodSandboxHook reports a pod's end.
func (f *hookService) PostStopPodSandboxHook(_ context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	uid := r.GetPodMeta().GetUid()
	f.mu.Lock()
	id := f.sandbox[uid]
	f.mu.Unlock()
	if id == "" {
		id = f.store.podOfUID(uid) // of before our start
	}
	f.forget(id)
	if id != "" {
		f.events.endPod(id, lifecycle.StopPodSandbox)
	}
	return echoPod(r), nil
}

// echoPod is the answer about a pod that changes nothing.
func echoPod(r *hooks.PodSandboxHookRequest) *hooks.PodSandboxHookResponse {
	return &hooks.PodSandboxHookResponse{
		Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations), CgroupParent: r.CgroupParent, Resources: r.Resources,
	}
}

// echo is the answer that changes nothing: proxies take cpusets and oom_score_adj
// of an answer even where they are empty or 0.
func echo(r *hooks.ContainerResourceHookRequest) *hooks.ContainerResourceHookResponse {
	out := &hooks.ContainerResourceHookResponse{
		ContainerAnnotations: maps.Clone(r.ContainerAnnotations), PodCgroupParent: r.PodCgroupParent, ContainerEnvs: maps.Clone(r.ContainerEnvs),
	}
	if r.ContainerResources != nil {
		out.ContainerResources = proto.CloneOf(r.ContainerResources)
	}
	return out
}

// PreCreateContainerHook decides a container. It has no id yet.
func (f *hookService) PreCreateContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if f.aside() {
		return echo(r), nil
	}
	if err := f.ready(); err != nil {
		return nil, err
	}
	p, err := f.podFor(ctx, r.PodMeta)
	if err != nil {
		return nil, err
	}
	asked := hookedIn(r, f.store.creationID(), p.ID)
	ans, err := f.events.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: asked})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	f.mu.Lock()
	f.creating[attemptOf{p.ID, asked.Name}] = asked
	f.mu.Unlock()
	resp := echo(r)
	values, left := f.link.taken(runtimes.Create, ans.Values)
	f.events.report(asked.Name, append(left, answer(resp, values)...))
	return resp, nil
}

// PreStartContainerHook follows a container to its id, and has the runtime's
// copy changed before it starts.
func (f *hookService) PreStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.located(ctx, r)
	if c == nil {
		return echo(r), nil // the sandbox is found in the runtime's list
	}
	end, err := f.events.starting(ctx, c, p)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	end() // the proxy may never report that it has started
	return echo(r), nil
}

// located returns a container the proxy names by its id, taken in where it is
// new.
func (f *hookService) located(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*lifecycle.Container, *lifecycle.Pod) {
	id := r.GetContainerMeta().GetId()
	if f.ready() != nil || id == "" {
		return nil, nil
	}
	if c, _ := f.store.container(id); c == nil {
		if _, err := f.podFor(ctx, r.PodMeta); err != nil {
			return nil, nil
		}
	}
	c, p := f.lists.find(ctx, id)
	if c == nil {
		return nil, nil
	}
	key := attemptOf{p.ID, c.Name}
	f.mu.Lock()
	former := f.creating[key]
	delete(f.creating, key)
	f.mu.Unlock()
	if former != nil {
		f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: p, Container: c, Former: former.ID})
	}
	return c, p
}

// PostStartContainerHook reports that a container runs.
func (f *hookService) PostStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if c, p := f.located(ctx, r); c != nil {
		f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: c})
	}
	return echo(r), nil
}

// PreUpdateContainerResourcesHook answers what a kubelet asks for again. The
// proxy reports all resources there are: those the runtime has already are not
// asked for.
func (f *hookService) PreUpdateContainerResourcesHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.located(ctx, r)
	if c == nil || r.ContainerResources == nil { // a proxy that was started again knows none
		return echo(r), nil
	}
	asked := hookResources(r.ContainerResources)
	if full, err := f.client.Container(ctx, c.ID, p.ID); err == nil {
		asked = onlyNew(asked, full.Resources)
	}
	ans, err := f.events.handle(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: c, Requested: &asked})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	resp := echo(r)
	values, left := f.link.taken(runtimes.Request, ans.Values)
	f.events.report(c.Name, append(left, answer(resp, values)...))
	f.store.updatePending(c.ID, ans.Values)
	written := hookResources(resp.ContainerResources)
	f.order.work.Go(func() {
		connect.RecoverPanic(f.log, "awaiting an update", func() { f.awaitUpdate(f.order.ctx, c, p, written) })
	})
	return resp, nil
}

// mostUpdate bounds the wait for an update that a proxy was answered. updatePause
// is between two looks, at first.
const (
	mostUpdate  = 3 * time.Second
	updatePause = 5 * time.Millisecond
)

// awaitUpdate reports that a container was updated once the runtime has what the
// proxy was answered: nobody says when, and values that the kernel takes only
// beside the new ones would be refused before. A proxy may also give up; then it
// is notified of at the end.
func (f *hookService) awaitUpdate(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, want lifecycle.Resources) {
	limited, cancel := context.WithTimeout(ctx, mostUpdate)
	defer cancel()
	for pause := updatePause; ; pause *= 2 {
		full, err := f.client.Container(limited, c.ID, p.ID)
		if criclient.Gone(err) {
			return // its end is noticed by itself
		}
		if err == nil {
			if left := onlyNew(want, full.Resources); left.CPU == (lifecycle.CPU{}) && !left.Memory.Limit.Set {
				break
			}
		}
		if limited.Err() != nil {
			break
		}
		sleep.For(limited, pause)
	}
	f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: p, Container: c})
}

// PostStopContainerHook reports that a container has ended.
func (f *hookService) PostStopContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if c, p := f.located(ctx, r); c != nil {
		f.events.endContainer(c, p, lifecycle.StopContainer)
	}
	return echo(r), nil
}
