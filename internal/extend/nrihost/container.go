package nrihost

import (
	"context"
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// startContainer asks plugins about the start of a container, and reports the start to plugins after the runtime has
// started the container.
func (h *Host) startContainer(ctx context.Context, method string, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	id := req.GetContainerId()
	if h.hidden.hides(id) {
		return nil, status.Errorf(codes.NotFound, "container %q is not ready: the agent waits for the answers of NRI plugins", id)
	}
	c, p := h.objects.container(id)
	if c == nil {
		return invoke[cri.StartContainerResponse](ctx, h, method, req)
	}
	err := h.askPlugins("StartContainer", func() error {
		return h.nri.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: c})
	})
	if err != nil {
		return nil, err
	}
	resp, err := invoke[cri.StartContainerResponse](ctx, h, method, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	pid := uint32(0)
	if s, err := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true}); err == nil {
		v, _ := parseVerboseStatus(s.GetInfo()) // without an error check, because some runtimes do not report the PID
		pid = v.PID
	}
	h.objects.changeContainer(id, func(c *api.Container) { c.State, c.Pid = api.ContainerState_CONTAINER_RUNNING, pid })
	if c, p = h.objects.container(id); c != nil {
		h.notify("PostStartContainer", id, func() error {
			return h.nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: p, Container: c})
		})
	}
	return resp, nil
}

// updateContainer asks plugins about a request that updates a container's resources. It merges the plugins' changes
// into the request.
func (h *Host) updateContainer(ctx context.Context, method string, req *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	id := req.GetContainerId()
	c, p := h.objects.container(id)
	if c == nil {
		return invoke[cri.UpdateContainerResourcesResponse](ctx, h, method, req)
	}
	requested := toNRIResources(req.GetLinux())
	if requested == nil {
		requested = &api.LinuxResources{}
	}
	var answer *api.UpdateContainerResponse
	err := h.askPlugins("UpdateContainer", func() (err error) {
		answer, err = h.nri.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: p, Container: c, LinuxResources: clone(requested)})
		return err
	})
	if err != nil {
		return nil, err
	}
	var others []*api.ContainerUpdate
	for _, u := range answer.GetUpdate() {
		switch {
		case u == nil: // the NRI library returns nil if no plugin has an update
		case u.GetContainerId() != id:
			others = append(others, u)
		default:
			h.mergeUpdate(req, requested, u)
		}
	}
	resp, err := invoke[cri.UpdateContainerResourcesResponse](ctx, h, method, req)
	if err != nil {
		return nil, err
	}
	h.objects.changeContainer(id, func(c *api.Container) { addResources(c, req.GetLinux()) })
	h.applyUpdates(ctx, others)
	if c, p = h.objects.container(id); c != nil {
		h.notify("PostUpdateContainer", id, func() error {
			return h.nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: p, Container: c})
		})
	}
	return resp, nil
}

// mergeUpdate merges the resources that plugins set into the request req. The parameter u has these resources.
// mergeUpdate logs the resources for which the CRI has no field. The parameter requested has the resources of req
// before the merge.
func (h *Host) mergeUpdate(req *cri.UpdateContainerResourcesRequest, requested *api.LinuxResources, u *api.ContainerUpdate) {
	forCRI, rest, unsupported := splitForCRI(u.GetLinux().GetResources())
	if forCRI != nil {
		req.Linux = mergeResources(forCRI, req.GetLinux())
	}
	_, requestedRest, _ := splitForCRI(requested)
	if unsupported = append(unsupported, resourcesNotRequested(rest, requestedRest)...); len(unsupported) > 0 {
		h.log.Warn("the agent cannot apply some fields that NRI plugins set for a container", logkey.Container, u.GetContainerId(), logkey.Values, unsupported)
	}
}

// resourcesNotRequested compares two messages with resources for which the CRI has no field. It returns the names of
// the resources in rest (set by plugins) whose values differ from the values in requested (set by the caller of the
// CRI).
func resourcesNotRequested(rest, requested *api.LinuxResources) (names []string) {
	if rest == nil {
		return nil
	}
	n := clone(rest)
	if requested != nil && n.Memory != nil && requested.Memory.GetSwap().GetValue() == n.Memory.GetSwap().GetValue() {
		n.Memory.Swap = nil
	}
	n.HugepageLimits = slices.DeleteFunc(n.HugepageLimits, func(l *api.HugepageLimit) bool {
		return slices.ContainsFunc(requested.GetHugepageLimits(), func(o *api.HugepageLimit) bool { return proto.Equal(o, l) })
	})
	maps.DeleteFunc(n.Unified, func(key, value string) bool {
		v, has := requested.GetUnified()[key]
		return has && v == value
	})
	return namesOfSetFields(n)
}

// stopContainer stops a container in the runtime, and then reports the stop to plugins. So plugins get the event only
// after the container's grace period.
func (h *Host) stopContainer(ctx context.Context, method string, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	resp, err := invoke[cri.StopContainerResponse](ctx, h, method, req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	h.notifyContainerStopped(ctx, req.GetContainerId())
	return resp, nil
}

// removeContainer reports the removal of a container to plugins, and then removes the container in the runtime.
func (h *Host) removeContainer(ctx context.Context, method string, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	id := req.GetContainerId()
	h.hidden.awaitVisible(ctx, id)
	if h.objects.contains(id) {
		if h.objects.isRunning(id) { // stop it first, because notifyContainerRemoved also reports that it has stopped
			_, _ = h.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id})
		}
		h.notifyContainerRemoved(ctx, id)
	}
	resp, err := invoke[cri.RemoveContainerResponse](ctx, h, method, req)
	if err == nil {
		h.objects.remove(id)
	}
	return resp, err
}
