package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// HookService has the attachment asked by a runtime proxy that is there already,
// in place of standing between kubelet and runtime itself: it serves
// runtime.v1alpha1.RuntimeHookService. What the proxy does not tell it asks the
// runtime for.
type HookService struct {
	// Socket is where it serves.
	Socket string
	// Register is the file that tells proxies of it; "" writes none.
	Register string
}

// podUID is the label that every runtime keeps of a kubelet's pods.
const podUID = "io.kubernetes.pod.uid"

// runHooks serves hook calls until ctx ends.
func (a *Attachment) runHooks(ctx context.Context, stop context.CancelFunc) error {
	l, err := opened(ctx, a, func() (net.Listener, error) { return listenAt(a.o.Hooks.Socket) })
	if err != nil {
		return fmt.Errorf("hook service: %w", err)
	}
	if ctx.Err() != nil {
		if l != nil {
			err = l.Close()
		}
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(a.containCall))
	face := &hookFace{a: a, creating: map[attemptOf]*lifecycle.Container{}, sandbox: map[string]string{}}
	a.mu.Lock()
	a.face = face
	a.mu.Unlock()
	hooks.RegisterRuntimeHookServiceServer(server, face)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveUntil(l, server) })
	a.o.Log.Info("serving hooks", logkey.Socket, a.o.Hooks.Socket)
	if a.o.Hooks.Register != "" {
		if err := Register(a.o.Hooks.Register, a.o.Hooks.Socket, a.o.Fail); err != nil {
			// Somebody may have written it by hand.
			a.o.Log.Error("proxies are not told of the hook service", logkey.File, a.o.Hooks.Register, logkey.Err, err)
		}
	}
	group.Go(func() error { a.follow(ctx); return nil })
	<-ctx.Done()
	stopWithin(server, grace)
	stop()
	err = group.Wait()
	a.work.Wait()
	return err
}

// stopWithin lets calls under way end, within bounds: a proxy that reads nothing would
// have its answer, and the agent's end, wait for ever.
func stopWithin(s *grpc.Server, bound time.Duration) {
	cut := time.AfterFunc(bound, s.Stop)
	defer cut.Stop()
	s.GracefulStop()
}

func serveUntil(l net.Listener, s *grpc.Server) error {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve hooks: %w", err)
	}
	return nil
}

// containCall keeps a panic from taking the agent down; the proxy is told.
func (a *Attachment) containCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !a.contain(info.FullMethod, func() { resp, err = handler(ctx, req) }) {
		return nil, status.Error(codes.Internal, "trimtab: deciding failed")
	}
	return resp, err
}

// hookFace is the attachment as proxies see it.
type hookFace struct {
	hooks.UnimplementedRuntimeHookServiceServer

	a *Attachment
	// creating are containers that were decided and have no id yet, sandbox the
	// ready sandboxes by their pods' UID; guarded by the attachment's mutex.
	creating map[attemptOf]*lifecycle.Container
	sandbox  map[string]string
}

// attemptOf names a container that has no id.
type attemptOf struct{ pod, name string }

// ready is an error until it is known what runs.
func (f *hookFace) ready() error {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	if !f.a.known {
		return status.Error(codes.Unavailable, "trimtab: it is not known yet what runs")
	}
	return nil
}

// aside reports whether another agent decides: then answers change nothing.
func (f *hookFace) aside() bool {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return f.a.standby && !f.a.known
}

// podFor is the pod as the runtime knows it; the proxy tells no sandbox's id.
func (f *hookFace) podFor(ctx context.Context, m *hooks.PodSandboxMetadata) (*lifecycle.Pod, error) {
	uid := m.GetUid()
	f.a.mu.Lock()
	id := f.sandbox[uid]
	f.a.mu.Unlock()
	if p := f.a.pod(id); p != nil && p.Unread == "" && id != "" {
		f.a.await(ctx, id)
		return p, nil
	}
	l, err := f.a.backend.sandboxOf(ctx, uid)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, status.Errorf(codes.NotFound, "trimtab: the runtime has no ready sandbox of pod %s/%s (uid %q)", m.GetNamespace(), m.GetName(), uid)
	}
	p := f.a.pod(l.Id)
	if p == nil || p.Unread != "" {
		if p, err = f.a.backend.pod(ctx, l); err != nil {
			return nil, err
		}
		f.a.notePod(p)
		f.a.tell(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	f.a.mu.Lock()
	f.sandbox[uid] = l.Id
	f.a.mu.Unlock()
	return p, nil
}

// sandboxOf returns the newest ready sandbox of a pod, nil for none.
func (b *backend) sandboxOf(ctx context.Context, uid string) (*cri.PodSandbox, error) {
	if uid == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	all, err := b.calls.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}, LabelSelector: map[string]string{podUID: uid},
	}})
	if err != nil {
		return nil, fmt.Errorf("look for the pod's sandbox: %w", err)
	}
	var newest *cri.PodSandbox
	for _, l := range all.Items {
		if l.GetMetadata().GetUid() == uid && (newest == nil || later(l, newest)) {
			newest = l
		}
	}
	return newest, nil
}

// later reports whether one sandbox of a pod came after another. The kubelet counts
// a pod's sandboxes; the wall clock may have been set back between two of them.
func later(a, b *cri.PodSandbox) bool {
	return cmp.Or(cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), cmp.Compare(a.CreatedAt, b.CreatedAt)) > 0
}

// PreRunPodSandboxHook answers with what was asked, and what hook servers of our
// own want of the pod.
func (f *hookFace) PreRunPodSandboxHook(ctx context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	f.a.mu.Lock()
	delete(f.sandbox, r.GetPodMeta().GetUid()) // another is to come
	f.a.mu.Unlock()
	resp := &hooks.PodSandboxHookResponse{
		Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations), CgroupParent: r.CgroupParent, Resources: r.Resources,
	}
	h, ok := f.a.o.Handler.(beforePod)
	if !ok || f.aside() {
		return resp, nil
	}
	m := r.GetPodMeta()
	want, err := h.BeforePod(ctx, f.a, &lifecycle.Pod{
		Name: m.GetName(), UID: m.GetUid(), Namespace: m.GetNamespace(), Labels: r.Labels, Annotations: r.Annotations,
		CgroupParent: r.CgroupParent, RuntimeHandler: r.RuntimeHandler,
	})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	for k, v := range want.Labels {
		resp.Labels = withPair(resp.Labels, k, v)
	}
	for k, v := range want.Annotations {
		resp.Annotations = withPair(resp.Annotations, k, v)
	}
	return resp, nil
}

func withPair(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}

// forgetLocked forgets a sandbox that went: the proxy may have been away when it did.
func (f *hookFace) forgetLocked(id string) {
	maps.DeleteFunc(f.creating, func(k attemptOf, _ *lifecycle.Container) bool { return k.pod == id })
	maps.DeleteFunc(f.sandbox, func(_, sandbox string) bool { return sandbox == id })
}

// PostStopPodSandboxHook tells of a pod's end.
func (f *hookFace) PostStopPodSandboxHook(_ context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	uid := r.GetPodMeta().GetUid()
	f.a.mu.Lock()
	id := f.sandbox[uid]
	delete(f.sandbox, uid)
	for known, p := range f.a.store.pods {
		if id == "" && uid != "" && p.told.UID == uid { // of before our start
			id = known
		}
	}
	for k := range f.creating {
		if k.pod == id {
			delete(f.creating, k)
		}
	}
	f.a.mu.Unlock()
	if id != "" {
		f.a.after(id, func(ctx context.Context) { f.a.endPod(ctx, id, lifecycle.StopPodSandbox) })
	}
	return &hooks.PodSandboxHookResponse{Labels: r.Labels, Annotations: r.Annotations, CgroupParent: r.CgroupParent, Resources: r.Resources}, nil
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
func (f *hookFace) PreCreateContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
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
	told := hookedIn(r, f.a.former(), p.ID)
	ans, err := f.a.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: told})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	f.a.mu.Lock()
	f.creating[attemptOf{p.ID, told.Name}] = told
	f.a.mu.Unlock()
	resp := echo(r)
	values, left := f.a.taken(runtimes.Create, ans.Values)
	f.a.report(told.Name, append(left, answer(resp, values)...))
	return resp, nil
}

// PreStartContainerHook follows a container to its id, and has the runtime's
// copy changed before it starts.
func (f *hookFace) PreStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.located(ctx, r)
	if c == nil {
		return echo(r), nil // it is found in the runtime's list
	}
	ans, err := f.a.handle(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	serial, end := f.a.start()
	var pending []lifecycle.Value
	f.a.change(c.ID, func(k *ctr) { pending, k.pending, k.started = k.pending, nil, true })
	if len(pending) > 0 {
		if err := f.a.send(ctx, c.ID, pending); err != nil {
			f.a.o.Log.Warn("a container starts with what it was created with; the kernel is corrected at once", logkey.Container, c.ID, logkey.Err, err)
		}
	}
	if ans.Owns {
		f.a.starting(ctx, serial)
	}
	end() // the proxy may never tell that it has started
	return echo(r), nil
}

// located returns a container the proxy names by its id, taken in where it is
// new.
func (f *hookFace) located(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*lifecycle.Container, *lifecycle.Pod) {
	id := r.GetContainerMeta().GetId()
	if f.ready() != nil || id == "" {
		return nil, nil
	}
	if c, _ := f.a.container(id); c == nil {
		if _, err := f.podFor(ctx, r.PodMeta); err != nil {
			return nil, nil
		}
	}
	c, p := f.a.find(ctx, id)
	if c == nil {
		return nil, nil
	}
	key := attemptOf{p.ID, c.Name}
	f.a.mu.Lock()
	former := f.creating[key]
	delete(f.creating, key)
	f.a.mu.Unlock()
	if former != nil {
		f.a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: p, Container: c, Former: former.ID})
	}
	return c, p
}

// PostStartContainerHook tells that a container runs.
func (f *hookFace) PostStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if c, p := f.located(ctx, r); c != nil {
		f.a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: c})
	}
	return echo(r), nil
}

// PreUpdateContainerResourcesHook answers what a kubelet asks for anew. The
// proxy tells all resources there are: those the runtime has already are not
// asked for.
func (f *hookFace) PreUpdateContainerResourcesHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.located(ctx, r)
	if c == nil || r.ContainerResources == nil { // a proxy that was started anew knows none
		return echo(r), nil
	}
	asked := hookResources(r.ContainerResources)
	if full, err := f.a.backend.container(ctx, c.ID, p.ID); err == nil {
		asked = onlyNew(asked, full.Resources)
	}
	ans, err := f.a.handle(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: c, Requested: &asked})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	resp := echo(r)
	values, left := f.a.taken(runtimes.Request, ans.Values)
	f.a.report(c.Name, append(left, answer(resp, values)...))
	f.a.change(c.ID, func(k *ctr) {
		if len(k.pending) > 0 {
			k.pending = merge(k.pending, ans.Values)
		}
	})
	written := hookResources(resp.ContainerResources)
	f.a.work.Go(func() {
		f.a.contain("awaiting an update", func() { f.a.awaitUpdate(f.a.ctx, c, p, written) })
	})
	return resp, nil
}

// mostUpdate bounds the wait for an update that a proxy was answered. updatePause
// is between two looks, at first.
const (
	mostUpdate  = 3 * time.Second
	updatePause = 5 * time.Millisecond
)

// awaitUpdate tells that a container was updated once the runtime has what the
// proxy was answered: nobody says when, and values that the kernel takes only
// beside the new ones would be refused before. A proxy may also give up; then it
// is told at the end.
func (a *Attachment) awaitUpdate(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, want lifecycle.Resources) {
	limited, cancel := context.WithTimeout(ctx, mostUpdate)
	defer cancel()
	for pause := updatePause; ; pause *= 2 {
		full, err := a.backend.container(limited, c.ID, p.ID)
		if status.Code(errors.Unwrap(err)) == codes.NotFound {
			return // its end is told by itself
		}
		if err == nil {
			if left := onlyNew(want, full.Resources); left.CPU == (lifecycle.CPU{}) && !left.Memory.Limit.Set {
				break
			}
		}
		if limited.Err() != nil {
			break
		}
		select {
		case <-limited.Done():
		case <-time.After(pause):
		}
	}
	a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: p, Container: c})
}

// PostStopContainerHook tells that a container has ended.
func (f *hookFace) PostStopContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if c, p := f.located(ctx, r); c != nil {
		f.a.after(p.ID, func(ctx context.Context) { f.a.endContainer(ctx, c, p, lifecycle.StopContainer) })
	}
	return echo(r), nil
}
