package nrihost

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// loadObjects reads the runtime's pods and containers. It leaves out containers that have ended, and objects whose
// status the runtime does not return.
func (h *Host) loadObjects(ctx context.Context) error {
	h.objects.reset()
	pods, err := h.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	ctrs, err := h.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	stopped, err := h.stoppedPods(pods.GetItems())
	if err != nil {
		return err
	}
	for _, p := range pods.GetItems() {
		msg, ready, err := h.podMessage(ctx, p.GetId())
		if err != nil {
			h.log.Warn("the agent does not show NRI plugins a pod that the runtime cannot describe", logkey.Pod, p.GetId(), logkey.Err, err)
			continue
		}
		h.objects.addPod(msg, !ready || stopped[p.GetId()])
	}
	for _, c := range ctrs.GetContainers() {
		if c.GetState() == cri.ContainerState_CONTAINER_EXITED || c.GetState() == cri.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		msg, err := h.containerMessage(ctx, c.GetId(), c.GetPodSandboxId())
		if msg == nil {
			h.log.Warn("the agent does not show NRI plugins a container that the runtime cannot describe", logkey.Container, c.GetId(), logkey.Err, err)
			continue
		}
		h.objects.addContainer(msg)
	}
	return ctx.Err()
}

// stoppedPods returns the existing pods whose stop an earlier agent reported to plugins.
func (h *Host) stoppedPods(there []*cri.PodSandbox) (map[string]bool, error) {
	all, drops, err := h.journal.read()
	stopped := map[string]bool{}
	for i, e := range all {
		if e.Stopped == "" {
			continue
		}
		stopped[e.Stopped] = slices.ContainsFunc(there, func(p *cri.PodSandbox) bool { return p.GetId() == e.Stopped })
		if !stopped[e.Stopped] {
			drops[i]()
		}
	}
	return stopped, err
}

// synchronize reports all pods and containers to a plugin, and applies the updates that the plugin requests. The
// library sends no events meanwhile. synchronize must not call methods of the library's Adaptation. A few pods with
// very large containers cause a panic in the library (NRI 0.12.5, pkg/adaptation/plugin.go). synchronize converts this
// panic to an error.
func (h *Host) synchronize(ctx context.Context, tell adaptation.SyncCB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("synchronise a plugin: %v", p)
		}
	}()
	h.describeAll(ctx)
	pods, ctrs := h.objects.objectsForSync()
	trimContainers(ctrs)
	updates, err := tell(ctx, pods, ctrs)
	if err != nil {
		return err
	}
	h.applyUpdates(ctx, updates)
	return nil
}

// describeTries limits the attempts to read the status of a container. An attempt fails if the container changes while
// the host reads its status.
const describeTries = 5

// describeAll reads the status of the containers that were created while no plugin was connected.
func (h *Host) describeAll(ctx context.Context) {
	failed := map[string]error{}
	for range describeTries {
		for _, k := range h.objects.listUndescribed() {
			c, err := h.containerMessage(ctx, k.id, k.pod)
			if failed[k.id] = err; c != nil {
				h.objects.replaceUndescribed(k, c)
			}
		}
	}
	for _, k := range h.objects.listUndescribed() {
		h.log.Warn("the agent shows NRI plugins only the request for a container", logkey.Container, k.id, logkey.Err, failed[k.id])
	}
}

const (
	// trimContainerSize is the size in bytes above which the host trims a container for the synchronisation of a
	// plugin, if all containers together have more than trimTotalSize. The library cannot split a message with a few
	// containers of this size.
	trimContainerSize = 128 << 10
	trimTotalSize     = 3 << 20
)

// trimContainers removes environment, arguments and annotations of very large containers, if all containers together
// are too large for one message.
func trimContainers(ctrs []*api.Container) {
	all := 0
	for _, c := range ctrs {
		all += c.SizeVT()
	}
	if all <= trimTotalSize {
		return
	}
	for _, c := range ctrs {
		if c.SizeVT() > trimContainerSize {
			c.Env, c.Args, c.Annotations = nil, nil, nil
		}
	}
}

// applyUnsolicited applies updates that a plugin requests without an event. It returns the failed updates.
func (h *Host) applyUnsolicited(ctx context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return h.applyUpdates(ctx, updates), nil
}

// reportEnded lists the runtime's containers, and reports to plugins the containers that stopped or were removed
// without a CRI call.
func (h *Host) reportEnded(ctx context.Context) error {
	before := h.objects.containers()
	l, err := h.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	there := map[string]cri.ContainerState{}
	for _, c := range l.GetContainers() {
		there[c.GetId()] = c.GetState()
	}
	for _, id := range before {
		state, listed := there[id]
		switch {
		case !listed:
			h.notifyContainerRemoved(ctx, id)
			h.objects.remove(id)
		case state == cri.ContainerState_CONTAINER_EXITED && h.objects.isRunning(id):
			h.notifyContainerStopped(ctx, id)
		}
	}
	return nil
}

// applyUpdates applies the updates that plugins request for existing containers. It returns the updates that failed.
func (h *Host) applyUpdates(ctx context.Context, updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate) {
	for _, u := range updates {
		if u == nil {
			continue
		}
		if err := h.applyUpdate(ctx, u); err != nil {
			h.log.Warn("the agent does not apply an NRI plugin's update of a container", logkey.Container, u.GetContainerId(), logkey.Err, err)
			if !u.GetIgnoreFailure() {
				failed = append(failed, u)
			}
		}
	}
	return failed
}

func (h *Host) applyUpdate(ctx context.Context, u *api.ContainerUpdate) error {
	if c, _ := h.objects.container(u.GetContainerId()); c == nil {
		return status.Errorf(codes.NotFound, "there is no container %q", u.GetContainerId())
	}
	carried, rest, unsupported := splitForCRI(u.GetLinux().GetResources())
	if carried != nil {
		if err := h.updateResources(ctx, u.GetContainerId(), carried); err != nil {
			return err
		}
	}
	if unsupported = append(unsupported, namesOfSetFields(rest)...); len(unsupported) > 0 {
		return fmt.Errorf("the CRI has no field for %v", unsupported)
	}
	return nil
}

// updateResources updates the resources of a container through the CRI proxy, so that the agent decides about them.
func (h *Host) updateResources(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	if _, err := h.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}); err != nil {
		return err
	}
	h.objects.changeContainer(id, func(c *api.Container) { addResources(c, r) })
	h.reportNarrowed(ctx, id, r)
	return nil
}

// reportNarrowed logs a warning if a container did not get the CPUs that a plugin chose. The reason may be that other
// containers own some of these CPUs, or that the container owns other CPUs.
func (h *Host) reportNarrowed(ctx context.Context, id string, r *cri.LinuxContainerResources) {
	if r.CpusetCpus == "" {
		return
	}
	s, err := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return
	}
	v, err := parseVerboseStatus(s.GetInfo())
	if err != nil || v.Spec == nil || v.Spec.Linux == nil || v.Spec.Linux.Resources == nil || v.Spec.Linux.Resources.CPU == nil {
		return
	}
	if has := v.Spec.Linux.Resources.CPU.Cpus; has != r.CpusetCpus {
		h.log.Warn("a container does not get the CPUs that NRI plugins chose, because the agent's own decisions have priority",
			logkey.Container, id, logkey.Value, r.CpusetCpus, logkey.CPUs, has)
	}
}
