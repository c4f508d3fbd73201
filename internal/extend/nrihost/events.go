package nrihost

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// held are the calls that are NRI events.
var held = map[string]*handler{
	"RunPodSandbox":             opens(typed((*Host).runPod)),
	"UpdatePodSandboxResources": typed((*Host).updatePod),
	"StopPodSandbox":            typed((*Host).stopPod),
	"RemovePodSandbox":          typed((*Host).removePodSandbox),
	"CreateContainer":           opens(typed((*Host).createContainer)),
	"StartContainer":            typed((*Host).startContainer),
	"UpdateContainerResources":  typed((*Host).updateContainer),
	"StopContainer":             typed((*Host).stopContainer),
	"RemoveContainer":           typed((*Host).removeContainer),
}

// opens makes a creation wait while the host opens, because until then the host does not know what runs.
func opens(to *handler) *handler {
	return &handler{opens: true, serve: func(h *Host, ctx context.Context, method string, req []byte) ([]byte, error) {
		h.opening.RLock()
		defer h.opening.RUnlock()
		switch {
		case h.up.Load():
			return to.serve(h, ctx, method, req)
		case h.o.Fail:
			return nil, status.Error(codes.Unavailable, "trimtab: the agent does not serve NRI plugins now; failurePolicy.agent is fail, so nothing is created without them")
		}
		return h.forward(ctx, method, req)
	}}
}

// afterwards is the context for the work after a call that the runtime has done. That work goes on even if the
// caller gives up.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), mostHeld)
}

// mostHeld bounds the time for the work after a call.
const mostHeld = 2 * time.Minute

// ask asks plugins about one event. An error names the plugin that returned it.
func (h *Host) ask(event string, f func() error) error {
	h.serial.Lock()
	defer h.serial.Unlock()
	h.plugins.reset()
	err := f()
	if err == nil {
		return nil
	}
	if name := h.plugins.lastFailed(); name != "" {
		return status.Errorf(codes.FailedPrecondition, "NRI plugin %s failed %s: %v", name, event, err)
	}
	return status.Errorf(codes.FailedPrecondition, "NRI plugins failed %s: %v", event, err)
}

// tell reports a past event to plugins, and logs their errors.
func (h *Host) tell(event, id string, f func() error) {
	if err := h.ask(event, f); err != nil {
		h.log.Warn("an NRI plugin failed an event that cannot be refused", logkey.Event, event, logkey.Owner, id, logkey.Err, err)
	}
}

// endedContainer reports to plugins once that a container has stopped, and applies their updates.
func (h *Host) endedContainer(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	if !h.book.once(id, stoppedFlag) {
		block.Unblock()
		return
	}
	h.book.changeContainer(id, func(c *api.Container) { c.State, c.Pid = api.ContainerState_CONTAINER_STOPPED, 0 })
	c, p := h.book.container(id)
	var updates []*api.ContainerUpdate
	if c != nil {
		h.tell("StopContainer", id, func() error {
			resp, err := h.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c})
			updates = resp.GetUpdate()
			return err
		})
	}
	block.Unblock()
	h.applyUpdates(ctx, updates)
}

// removedContainer reports to plugins once that a container was removed.
func (h *Host) removedContainer(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	c, p := h.book.container(id)
	if c == nil || !h.book.once(id, removedFlag) {
		return
	}
	h.tell("RemoveContainer", id, func() error {
		return h.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c})
	})
}

// stoppedPod reports to plugins once that a pod stops.
func (h *Host) stoppedPod(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	p := h.book.pod(id)
	if p == nil || !h.book.once(id, stoppedFlag) {
		return
	}
	h.tell("StopPodSandbox", id, func() error { return h.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}) })
	h.journal.write(entry{Stopped: id})
}

// removedPod reports to plugins once that a pod was removed.
func (h *Host) removedPod(ctx context.Context, id string) {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	p := h.book.pod(id)
	if p == nil || !h.book.once(id, removedFlag) {
		return
	}
	h.tell("RemovePodSandbox", id, func() error { return h.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p}) })
}

// notReady is the error of a call about a pod for which plugins have not answered yet.
func notReady(id string) error {
	return status.Error(codes.NotFound, fmt.Sprintf("pod sandbox %q is not ready: NRI plugins have not answered yet", id))
}
