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
	"github.com/trimtab/trimtab/internal/attach/carry"
	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sleep"
)

// hookService is the gRPC service that runtime proxies call.
type hookService struct {
	hooks.UnimplementedRuntimeHookServiceServer
	*sharedState

	mu         sync.Mutex                           // guards the fields below
	creating   map[creatingKey]*lifecycle.Container // decided containers that have no id yet
	sandboxIDs map[string]string                    // ids of ready sandboxes, by pod UID
}

// creatingKey identifies a container that has no id yet, by the id of the pod and the name of the container.
type creatingKey struct{ pod, name string }

// intercept runs the handler of a call. It turns a panic into an error for the proxy.
func (f *hookService) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !connect.RecoverPanic(f.log, info.FullMethod, func() { resp, err = handler(ctx, req) }) {
		return nil, status.Error(codes.Internal, "trimtab: the agent panicked while it decided; see the agent's log")
	}
	return resp, err
}

// checkReady returns an error until the agent knows the running containers.
func (f *hookService) checkReady() error {
	if !f.link.containersKnown.Load() {
		return status.Error(codes.Unavailable, "trimtab: the agent does not know the running containers yet; try again")
	}
	return nil
}

// onStandby reports whether another agent decides. If it does, this agent's answers change nothing.
func (f *hookService) onStandby() bool {
	return f.link.standby.Load() && !f.link.containersKnown.Load()
}

// podFor returns the pod of a hook call, as the runtime describes the pod. It finds the sandbox by the pod's UID,
// because the proxy does not send the sandbox id.
func (f *hookService) podFor(ctx context.Context, m *hooks.PodSandboxMetadata) (*lifecycle.Pod, error) {
	uid := m.GetUid()
	f.mu.Lock()
	id := f.sandboxIDs[uid]
	f.mu.Unlock()
	if p := f.store.pod(id); p != nil && p.Undescribed == "" && id != "" {
		f.queues.awaitQueue(ctx, id)
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
	if p == nil || p.Undescribed != "" {
		if p, err = f.client.Pod(ctx, l.Id); err != nil {
			return nil, err
		}
		f.store.notePod(p)
		f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	f.mu.Lock()
	f.sandboxIDs[uid] = l.Id
	f.mu.Unlock()
	return p, nil
}

// PreRunPodSandboxHook adds the labels and annotations of the agent's own hook servers to a pod. The rest of its answer
// repeats the request.
func (f *hookService) PreRunPodSandboxHook(ctx context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	f.mu.Lock()
	delete(f.sandboxIDs, r.GetPodMeta().GetUid()) // the id of the earlier sandbox: the pod gets a new one
	f.mu.Unlock()
	resp := unchangedPodAnswer(r)
	if f.onStandby() {
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
	resp.Labels, resp.Annotations = carry.MergePairs(resp.Labels, want.Labels), carry.MergePairs(resp.Annotations, want.Annotations)
	return resp, nil
}

// forgetSandbox forgets a removed sandbox. Not only the proxy's hook call leads to this, but also the comparison of
// lists, because the proxy is possibly not running when the sandbox ends.
func (f *hookService) forgetSandbox(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.creating, func(k creatingKey, _ *lifecycle.Container) bool { return k.pod == id })
	maps.DeleteFunc(f.sandboxIDs, func(_, sandbox string) bool { return sandbox == id })
}

// PostStopPodSandboxHook reports a pod's end.
func (f *hookService) PostStopPodSandboxHook(_ context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	uid := r.GetPodMeta().GetUid()
	f.mu.Lock()
	id := f.sandboxIDs[uid]
	f.mu.Unlock()
	if id == "" {
		id = f.store.podOfUID(uid) // the pod existed before the agent started
	}
	f.forgetSandbox(id)
	if id != "" {
		f.events.endPod(id, lifecycle.StopPodSandbox)
	}
	return unchangedPodAnswer(r), nil
}

// unchangedPodAnswer returns the answer that changes nothing in a pod.
func unchangedPodAnswer(r *hooks.PodSandboxHookRequest) *hooks.PodSandboxHookResponse {
	return &hooks.PodSandboxHookResponse{
		Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations), CgroupParent: r.CgroupParent, Resources: r.Resources,
	}
}

// unchangedAnswer returns the answer that changes nothing in a container. The answer repeats the request, because
// proxies apply cpusets and oom_score_adj of an answer even if they are empty or 0.
func unchangedAnswer(r *hooks.ContainerResourceHookRequest) *hooks.ContainerResourceHookResponse {
	out := &hooks.ContainerResourceHookResponse{
		ContainerAnnotations: maps.Clone(r.ContainerAnnotations), PodCgroupParent: r.PodCgroupParent, ContainerEnvs: maps.Clone(r.ContainerEnvs),
	}
	if r.ContainerResources != nil {
		out.ContainerResources = proto.CloneOf(r.ContainerResources)
	}
	return out
}

// PreCreateContainerHook decides the values of a container, which has no id yet.
func (f *hookService) PreCreateContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	if f.onStandby() {
		return unchangedAnswer(r), nil
	}
	if err := f.checkReady(); err != nil {
		return nil, err
	}
	p, err := f.podFor(ctx, r.PodMeta)
	if err != nil {
		return nil, err
	}
	asked := containerFromHook(r, f.store.creationID(), p.ID)
	ans, err := f.events.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: asked})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	f.mu.Lock()
	f.creating[creatingKey{p.ID, asked.Name}] = asked
	f.mu.Unlock()
	resp := unchangedAnswer(r)
	values, unsupported := f.link.splitSupported(runtimes.CreateCall, ans.Values)
	f.events.logUnsupported(asked.Name, append(unsupported, putAnswer(resp, values)...))
	return resp, nil
}

// PreStartContainerHook notes the id of a container, and sends pending values to the runtime before the container
// starts.
func (f *hookService) PreStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.findContainer(ctx, r)
	if c == nil {
		return unchangedAnswer(r), nil // the comparison of lists reports the container
	}
	end, err := f.events.handleStart(ctx, c, p)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	end() // already here, because the proxy may never call PostStartContainerHook
	return unchangedAnswer(r), nil
}

// findContainer returns the container with the id that the proxy sent, and its pod. If the store does not have the
// container, findContainer requests it from the runtime. It returns nil if the runtime does not have it either.
func (f *hookService) findContainer(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*lifecycle.Container, *lifecycle.Pod) {
	id := r.GetContainerMeta().GetId()
	if f.checkReady() != nil || id == "" {
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
	key := creatingKey{p.ID, c.Name}
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
	if c, p := f.findContainer(ctx, r); c != nil {
		f.events.notify(ctx, lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: c})
	}
	return unchangedAnswer(r), nil
}

// PreUpdateContainerResourcesHook decides about an update from the kubelet. The proxy sends all resources, not only the
// changed ones. So the values that the runtime already has do not count as requested.
func (f *hookService) PreUpdateContainerResourcesHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	c, p := f.findContainer(ctx, r)
	if c == nil || r.ContainerResources == nil { // a restarted proxy sends no resources
		return unchangedAnswer(r), nil
	}
	asked := resourcesFromHook(r.ContainerResources)
	if full, err := f.client.Container(ctx, c.ID, p.ID); err == nil {
		asked = withoutStored(asked, full.Resources)
	}
	ans, err := f.events.handle(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: c, Requested: &asked})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	resp := unchangedAnswer(r)
	values, unsupported := f.link.splitSupported(runtimes.KubeletUpdate, ans.Values)
	f.events.logUnsupported(c.Name, append(unsupported, putAnswer(resp, values)...))
	f.store.updatePending(c.ID, ans.Values)
	written := resourcesFromHook(resp.ContainerResources)
	f.queues.work.Go(func() {
		connect.RecoverPanic(f.log, "waiting for the runtime to apply an update", func() { f.awaitUpdate(f.queues.ctx, c, p, written) })
	})
	return resp, nil
}

// maxUpdateWait is the longest time that the agent waits until the runtime stores the values of an answer to a proxy.
// updatePause is the first pause between two polls.
const (
	maxUpdateWait = 3 * time.Second
	updatePause   = 5 * time.Millisecond
)

// awaitUpdate polls the runtime until the runtime stores the values in want, which the agent sent in its answer to the
// proxy. It then reports the update to the handler, which writes further values. It must wait, because the kernel
// accepts some of these values only after the runtime has written the new ones, and no call reports this moment. If the
// runtime does not have the values after maxUpdateWait, awaitUpdate reports the update nevertheless.
func (f *hookService) awaitUpdate(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, want lifecycle.Resources) {
	limited, cancel := context.WithTimeout(ctx, maxUpdateWait)
	defer cancel()
	for pause := updatePause; ; pause *= 2 {
		full, err := f.client.Container(limited, c.ID, p.ID)
		if criclient.NotFound(err) {
			return // the comparison of lists reports the container's end
		}
		if err == nil {
			if unstored := withoutStored(want, full.Resources); unstored.CPU == (lifecycle.CPU{}) && !unstored.Memory.Limit.Set {
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
	if c, p := f.findContainer(ctx, r); c != nil {
		f.events.endContainer(c, p, lifecycle.StopContainer)
	}
	return unchangedAnswer(r), nil
}
