package nrihost

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// runPod creates a sandbox in the runtime, and hides the sandbox from CRI clients until plugins have answered. If a
// plugin refuses the sandbox, runPod removes the sandbox.
func (h *Host) runPod(ctx context.Context, method string, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	m := req.GetConfig().GetMetadata()
	if m == nil {
		return invoke[cri.RunPodSandboxResponse](ctx, h, method, req)
	}
	setID, reveal, ok := h.hidden.hide(podKey(m))
	if !ok {
		return nil, status.Errorf(codes.AlreadyExists, "a call that creates pod sandbox %s/%s is running already", m.GetNamespace(), m.GetName())
	}
	defer reveal()
	done := h.journal.write(journalEntry{Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid(), Attempt: m.GetAttempt()})
	resp, err := invoke[cri.RunPodSandboxResponse](ctx, h, method, req)
	if err != nil {
		done()
		return nil, err
	}
	id := resp.GetPodSandboxId()
	setID(id)
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	if err := h.askAboutPod(ctx, id); err != nil {
		h.removePodUntilGone(ctx, id, done)
		return nil, err
	}
	done()
	return resp, nil
}

// askAboutPod asks plugins about a sandbox that the runtime has created.
func (h *Host) askAboutPod(ctx context.Context, id string) error {
	p, _, err := h.podMessage(ctx, id)
	if err != nil {
		return status.Errorf(codes.Unavailable, "report the new pod %s to NRI plugins: %v", id, err)
	}
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	err = h.askPlugins("RunPodSandbox", func() error { return h.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: clone(p)}) })
	if err == nil {
		h.objects.addPod(p, false)
		return nil
	}
	h.notify("StopPodSandbox", id, func() error { return h.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: clone(p)}) })
	h.notify("RemovePodSandbox", id, func() error { return h.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: clone(p)}) })
	return err
}

// removePodUntilGone removes a sandbox that a plugin refused, or that the host could not report. If an attempt fails,
// the host tries again. After a success it calls done, which removes the journal entry of the creation. If all attempts
// fail, the next start of the agent removes the sandbox.
func (h *Host) removePodUntilGone(ctx context.Context, id string, done func()) {
	for range maxRemovalAttempts {
		err := h.removePod(ctx, id)
		if err == nil {
			done()
			return
		}
		h.log.Warn("the agent cannot remove a pod that an NRI plugin refused; it tries again", logkey.Pod, id, logkey.Err, err)
		if !sleep.For(ctx, removalPause) {
			return
		}
	}
}

// maxCreationWait limits how long the stop of a pod waits for running creations of the pod's containers.
const maxCreationWait = 30 * time.Second

// maxRemovalAttempts limits the attempts to remove a pod or container that a plugin refused. removalPause is the pause
// between two attempts.
const (
	maxRemovalAttempts = 5
	removalPause       = 200 * time.Millisecond
)

// stopPod stops a pod. Before the runtime stops the pod, stopPod stops the pod's containers and reports the pod's stop
// to plugins. The reason is the order in NRI: plugins get the pod's stop after the containers have stopped, and before
// the runtime removes the pod's network.
func (h *Host) stopPod(ctx context.Context, method string, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	id := req.GetPodSandboxId()
	h.hidden.awaitVisible(ctx, id)
	if h.objects.pod(id) != nil {
		h.stopContainersOfPod(ctx, id)
	}
	return invoke[cri.StopPodSandboxResponse](ctx, h, method, req)
}

// stopContainersOfPod stops a pod's containers, and reports the stop of the containers and of the pod to plugins.
// Before that, it forbids new containers in the pod, and waits for running creations of containers. So plugins get the
// events of these creations before the pod's stop.
func (h *Host) stopContainersOfPod(ctx context.Context, id string) {
	h.objects.markEnding(id)
	creationCtx, cancel := context.WithTimeout(ctx, maxCreationWait)
	h.hidden.awaitContainers(creationCtx, id)
	cancel()
	for _, c := range h.objects.containersOf(id) {
		if h.objects.isRunning(c) {
			if _, err := h.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c}); err != nil && status.Code(err) != codes.NotFound {
				h.log.Warn("a pod is being stopped, and the agent could not stop one of its containers; NRI plugins are not notified that this container stopped", logkey.Container, c, logkey.Err, err)
				continue
			}
		}
		h.notifyContainerStopped(ctx, c) // also for a container that never ran
	}
	h.notifyPodStopped(ctx, id)
}

// removePodSandbox reports the stop and removal of a pod and its containers to plugins, and then removes the pod in the
// runtime.
func (h *Host) removePodSandbox(ctx context.Context, method string, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	id := req.GetPodSandboxId()
	h.hidden.awaitVisible(ctx, id)
	if h.objects.pod(id) != nil {
		h.stopContainersOfPod(ctx, id)
		for _, c := range h.objects.containersOf(id) {
			h.notifyContainerRemoved(ctx, c)
		}
		h.notifyPodRemoved(ctx, id)
	}
	resp, err := invoke[cri.RemovePodSandboxResponse](ctx, h, method, req)
	if err == nil {
		h.objects.remove(id)
		h.journal.removeEntry(journalEntry{Stopped: id})
	}
	return resp, err
}

// updatePod asks plugins about an update of a pod's resources, sends the update to the runtime, and reports the updated
// pod to plugins.
func (h *Host) updatePod(ctx context.Context, method string, req *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	id := req.GetPodSandboxId()
	p := h.objects.pod(id)
	if p == nil {
		return invoke[cri.UpdatePodSandboxResourcesResponse](ctx, h, method, req)
	}
	overhead, resources := toNRIResources(req.GetOverhead()), toNRIResources(req.GetResources())
	err := h.askPlugins("UpdatePodSandbox", func() error {
		_, err := h.nri.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{Pod: p, OverheadLinuxResources: overhead, LinuxResources: resources})
		return err
	})
	if err != nil {
		return nil, err
	}
	resp, err := invoke[cri.UpdatePodSandboxResourcesResponse](ctx, h, method, req)
	if err != nil {
		return nil, err
	}
	h.objects.changePod(id, func(p *api.PodSandbox) {
		if p.Linux == nil {
			p.Linux = &api.LinuxPodSandbox{}
		}
		if overhead != nil {
			p.Linux.PodOverhead = overhead
		}
		if resources != nil {
			p.Linux.PodResources = resources
		}
	})
	p = h.objects.pod(id)
	h.notify("PostUpdatePodSandbox", id, func() error {
		return h.nri.PostUpdatePodSandbox(ctx, &api.PostUpdatePodSandboxRequest{Pod: p})
	})
	return resp, nil
}
