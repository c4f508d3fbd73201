package nrihost

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// nriCalls has the handlers of the CRI methods that correspond to NRI events.
var nriCalls = map[string]*handler{
	"RunPodSandbox":             afterOpening(typedHandler((*Host).runPod)),
	"UpdatePodSandboxResources": typedHandler((*Host).updatePod),
	"StopPodSandbox":            typedHandler((*Host).stopPod),
	"RemovePodSandbox":          typedHandler((*Host).removePodSandbox),
	"CreateContainer":           afterOpening(typedHandler((*Host).createContainer)),
	"StartContainer":            typedHandler((*Host).startContainer),
	"UpdateContainerResources":  typedHandler((*Host).updateContainer),
	"StopContainer":             typedHandler((*Host).stopContainer),
	"RemoveContainer":           typedHandler((*Host).removeContainer),
}

// afterOpening returns a handler that calls the handler next while the host serves plugins. If the host starts to serve
// plugins at this moment, the handler waits, because the host does not know the running containers yet. If the host
// serves no plugins, the handler refuses the call (with Options.FailClosed) or forwards it to the runtime.
func afterOpening(next *handler) *handler {
	return &handler{beforeOpen: true, serve: func(h *Host, ctx context.Context, method string, req []byte) ([]byte, error) {
		h.openingMutex.RLock()
		defer h.openingMutex.RUnlock()
		switch {
		case h.serving.Load():
			return next.serve(h, ctx, method, req)
		case h.opts.FailClosed:
			return nil, status.Error(codes.Unavailable, "trimtab: the agent does not serve NRI plugins now; failurePolicy.agent is Fail, so the agent refuses to create a container or pod without NRI plugins")
		}
		return h.forward(ctx, method, req)
	}}
}

// withoutCancel returns the context for the host's work after the runtime has answered a call. The work continues even
// if the caller cancels the call.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), followUpTimeout)
}

// followUpTimeout limits the time for the host's work after the runtime has answered a call. It also limits how long
// the host delays a runtime event about a hidden container or pod.
const followUpTimeout = 2 * time.Minute

// askPlugins calls f, which sends one NRI event to the plugins and waits for the answers. An error of askPlugins names
// the plugin that failed.
func (h *Host) askPlugins(event string, f func() error) error {
	h.eventMutex.Lock()
	defer h.eventMutex.Unlock()
	h.plugins.resetFailedPlugin()
	err := f()
	if err == nil {
		return nil
	}
	if name := h.plugins.lastFailedPlugin(); name != "" {
		return status.Errorf(codes.FailedPrecondition, "NRI plugin %s failed at %s: %v", name, event, err)
	}
	return status.Errorf(codes.FailedPrecondition, "NRI plugins failed at %s: %v", event, err)
}

// notify calls f, which sends an NRI event to the plugins. The event has happened already, so plugins cannot refuse it.
// If a plugin returns an error, notify only logs the error.
func (h *Host) notify(event, id string, f func() error) {
	if err := h.askPlugins(event, f); err != nil {
		h.log.Warn("an NRI plugin returned an error for an event that cannot be refused", logkey.Event, event, logkey.Owner, id, logkey.Err, err)
	}
}

// notifyContainerStopped reports to plugins that a container has stopped, and applies the updates that the plugins
// request. It reports each stop only once.
func (h *Host) notifyContainerStopped(ctx context.Context, id string) {
	if h.objects.isReported(id, stoppedField) {
		return
	}
	s, _ := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id}) // s is nil if the runtime has removed the container
	block := h.nri.BlockPluginSync()
	if !h.objects.markReported(id, stoppedField) {
		block.Unblock()
		return
	}
	h.objects.changeContainer(id, func(c *api.Container) {
		c.State, c.Pid = api.ContainerState_CONTAINER_STOPPED, 0
		setTimesAndExit(c, s.GetStatus())
	})
	c, p := h.objects.container(id)
	var updates []*api.ContainerUpdate
	if c != nil {
		h.notify("StopContainer", id, func() error {
			resp, err := h.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c})
			updates = resp.GetUpdate()
			return err
		})
	}
	block.Unblock()
	h.applyUpdates(ctx, updates)
}

// notifyContainerRemoved reports to plugins that a container is removed. It reports each removal only once. Before the
// removal it reports a stop, even if the container never ran, so that plugins release the container's resources.
// Containerd's NRI does the same.
func (h *Host) notifyContainerRemoved(ctx context.Context, id string) {
	h.notifyContainerStopped(ctx, id)
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	c, p := h.objects.container(id)
	if c == nil || !h.objects.markReported(id, removedField) {
		return
	}
	h.notify("RemoveContainer", id, func() error {
		return h.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c})
	})
}

// notifyPodStopped reports to plugins that a pod stops. It reports each stop only once.
func (h *Host) notifyPodStopped(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	p := h.objects.pod(id)
	if p == nil || !h.objects.markReported(id, stoppedField) {
		return
	}
	h.notify("StopPodSandbox", id, func() error { return h.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}) })
	h.journal.write(journalEntry{Stopped: id})
}

// notifyPodRemoved reports to plugins that a pod is removed. It reports each removal only once.
func (h *Host) notifyPodRemoved(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	p := h.objects.pod(id)
	if p == nil || !h.objects.markReported(id, removedField) {
		return
	}
	h.notify("RemovePodSandbox", id, func() error { return h.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p}) })
}

// notReady returns the error for a call about a pod while plugins have not answered about the pod yet.
func notReady(id string) error {
	return status.Error(codes.NotFound, fmt.Sprintf("pod sandbox %q is not ready: the agent waits for the answers of NRI plugins", id))
}
