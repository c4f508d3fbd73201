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

// loadObjects reads the runtime's pods and containers into the object store. It leaves out containers that have ended,
// and pods and containers whose status the runtime does not return.
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
			h.log.Warn("the agent does not report a pod to NRI plugins, because it cannot read the status of the pod from the runtime", logkey.Pod, p.GetId(), logkey.Err, err)
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
			h.log.Warn("the agent does not report a container to NRI plugins, because it cannot read the status of the container from the runtime", logkey.Container, c.GetId(), logkey.Err, err)
			continue
		}
		h.objects.addContainer(msg)
	}
	return ctx.Err()
}

// stoppedPods returns the ids of the existing pods whose stop an earlier agent reported to plugins. It removes the
// journal entries of pods that do not exist any more.
func (h *Host) stoppedPods(existing []*cri.PodSandbox) (map[string]bool, error) {
	all, removers, err := h.journal.read()
	stopped := map[string]bool{}
	for i, e := range all {
		if e.Stopped == "" {
			continue
		}
		stopped[e.Stopped] = slices.ContainsFunc(existing, func(p *cri.PodSandbox) bool { return p.GetId() == e.Stopped })
		if !stopped[e.Stopped] {
			removers[i]()
		}
	}
	return stopped, err
}

// synchronize reports all pods and containers to a plugin, and applies the updates that the plugin requests. During
// this call the NRI library sends no events, and synchronize must not call methods of the library's Adaptation. If a
// few pods have very large containers, the library panics (NRI 0.12.5, pkg/adaptation/plugin.go). The method
// synchronize converts this panic to an error.
func (h *Host) synchronize(ctx context.Context, tell adaptation.SyncCB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("send all pods and containers to an NRI plugin: the NRI library panicked: %v", p)
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

// describeTries limits the attempts to read the status of a container. An attempt fails if the container's message in
// the object store changes while the host reads the status.
const describeTries = 5

// describeAll completes the messages about containers that were created while no plugin was connected. These messages
// have only the data of the CreateContainer requests. describeAll reads the statuses of the containers, and stores
// messages with the data of the statuses.
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
		h.log.Warn("the agent reports a container to NRI plugins with only the data of its CreateContainer request, because it cannot read the container's status", logkey.Container, k.id, logkey.Err, failed[k.id])
	}
}

const (
	// trimContainerSize and trimTotalSize are sizes in bytes. If all containers together have more than trimTotalSize,
	// the host trims each container with more than trimContainerSize in the Synchronize request to a plugin. The reason
	// is that the NRI library cannot split a request that has a few very large containers.
	trimContainerSize = 128 << 10
	trimTotalSize     = 3 << 20
)

// trimContainers removes the environment, arguments and annotations of very large containers, if all containers
// together are too large for one Synchronize request.
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

// applyUnsolicited applies updates that a plugin requests on its own, without an NRI event. It returns the failed
// updates.
func (h *Host) applyUnsolicited(ctx context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return h.applyUpdates(ctx, updates), nil
}

// reportEnded lists the runtime's containers. It reports to plugins the containers that have stopped or were removed
// without a CRI call through the host.
func (h *Host) reportEnded(ctx context.Context) error {
	before := h.objects.containers()
	l, err := h.runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	states := map[string]cri.ContainerState{}
	for _, c := range l.GetContainers() {
		states[c.GetId()] = c.GetState()
	}
	for _, id := range before {
		state, listed := states[id]
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
			h.log.Warn("the agent does not completely apply an update that an NRI plugin requests for a container", logkey.Container, u.GetContainerId(), logkey.Err, err)
			if !u.GetIgnoreFailure() {
				failed = append(failed, u)
			}
		}
	}
	return failed
}

// applyUpdate applies one update of a container. It returns an error if the CRI cannot set all fields of the update.
func (h *Host) applyUpdate(ctx context.Context, u *api.ContainerUpdate) error {
	if c, _ := h.objects.container(u.GetContainerId()); c == nil {
		return status.Errorf(codes.NotFound, "NRI plugins know no container with the id %q", u.GetContainerId())
	}
	forCRI, rest, unsupported := splitForCRI(u.GetLinux().GetResources())
	if forCRI != nil {
		if err := h.updateResources(ctx, u.GetContainerId(), forCRI); err != nil {
			return err
		}
	}
	if unsupported = append(unsupported, namesOfSetFields(rest)...); len(unsupported) > 0 {
		return fmt.Errorf("the CRI has no field for %v", unsupported)
	}
	return nil
}

// updateResources updates the resources of a container through the CRI proxy. So the agent decides which of these
// values the container gets.
func (h *Host) updateResources(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	if _, err := h.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}); err != nil {
		return err
	}
	h.objects.changeContainer(id, func(c *api.Container) { addResources(c, r) })
	h.warnIfCPUsDiffer(ctx, id, r)
	return nil
}

// warnIfCPUsDiffer logs a warning if a container did not get the CPUs that a plugin chose. For example, some of these
// CPUs are exclusive to other containers, or the agent chose exclusive CPUs for the container.
func (h *Host) warnIfCPUsDiffer(ctx context.Context, id string, r *cri.LinuxContainerResources) {
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
