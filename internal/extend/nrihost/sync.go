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

// load reads what the runtime has. One that it cannot describe holds up no other.
func (h *Host) load(ctx context.Context) error {
	h.book.reset()
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
			h.log.Warn("a pod that the runtime cannot describe is not shown to NRI plugins", logkey.Pod, p.GetId(), logkey.Err, err)
			continue
		}
		h.book.addPod(msg, !ready || stopped[p.GetId()])
	}
	for _, c := range ctrs.GetContainers() {
		if c.GetState() == cri.ContainerState_CONTAINER_EXITED || c.GetState() == cri.ContainerState_CONTAINER_UNKNOWN {
			continue
		}
		msg, err := h.containerMessage(ctx, c.GetId(), c.GetPodSandboxId())
		if msg == nil {
			h.log.Warn("a container that the runtime cannot describe is not shown to NRI plugins", logkey.Container, c.GetId(), logkey.Err, err)
			continue
		}
		h.book.addContainer(msg)
	}
	return ctx.Err()
}

// stoppedPods are the pods of which plugins of an earlier agent were told that they stop.
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

// synchronize tells a plugin what there is and applies what it asks for. The library sees
// to it that no event is under way; it is not called back. A panic of its own, which few
// pods and very large containers cause (NRI 0.12.5, pkg/adaptation/plugin.go), is an error
// of this plugin's.
func (h *Host) synchronize(ctx context.Context, tell adaptation.SyncCB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("synchronise a plugin: %v", p)
		}
	}()
	pods, ctrs := h.book.listed()
	trim(ctrs)
	updates, err := tell(ctx, pods, ctrs)
	if err != nil {
		return err
	}
	h.applyUpdates(ctx, updates)
	return nil
}

const (
	// mostOne is the size of a container from which on it is trimmed when plugins are
	// synchronised, in bytes, where all together have more than mostAll: the library cannot
	// split a message that has few containers of this size.
	mostOne = 128 << 10
	mostAll = 3 << 20
)

// trim takes environment, arguments and annotations out of very large containers.
func trim(ctrs []*api.Container) {
	all := 0
	for _, c := range ctrs {
		all += c.SizeVT()
	}
	if all <= mostAll {
		return
	}
	for _, c := range ctrs {
		if c.SizeVT() > mostOne {
			c.Env, c.Args, c.Annotations = nil, nil, nil
		}
	}
}

// unsolicited applies updates that a plugin asks for on its own account. It returns those
// that failed.
func (h *Host) unsolicited(ctx context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return h.applyUpdates(ctx, updates), nil
}

// compare tells plugins of containers that ended, or went, without a call.
func (h *Host) compare(ctx context.Context) error {
	before := h.book.containers()
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
		if ran := len(h.book.running([]string{id})) > 0; ran && (!listed || state == cri.ContainerState_CONTAINER_EXITED) {
			h.endedContainer(ctx, id)
		}
		if !listed {
			h.removedContainer(ctx, id)
			h.book.drop(id)
		}
	}
	return nil
}

// applyUpdates applies what plugins want of containers that exist. It returns those that
// could not be applied.
func (h *Host) applyUpdates(ctx context.Context, updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate) {
	for _, u := range updates {
		if u == nil {
			continue
		}
		if err := h.applyUpdate(ctx, u); err != nil {
			h.log.Warn("an NRI plugin's update of a container is not applied", logkey.Container, u.GetContainerId(), logkey.Err, err)
			if !u.GetIgnoreFailure() {
				failed = append(failed, u)
			}
		}
	}
	return failed
}

func (h *Host) applyUpdate(ctx context.Context, u *api.ContainerUpdate) error {
	if c, _ := h.book.container(u.GetContainerId()); c == nil {
		return status.Errorf(codes.NotFound, "there is no container %q", u.GetContainerId())
	}
	carried, rest, left := split(u.GetLinux().GetResources())
	if carried != nil {
		if err := h.updateResources(ctx, u.GetContainerId(), carried); err != nil {
			return err
		}
	}
	if left = append(left, namesOf(rest)...); len(left) > 0 {
		return fmt.Errorf("the CRI cannot carry %v", left)
	}
	return nil
}

// updateResources has the agent decide about resources and the runtime keep them.
func (h *Host) updateResources(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	if _, err := h.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}); err != nil {
		return err
	}
	h.book.changeContainer(id, func(c *api.Container) { note(c, r) })
	h.reportNarrowed(ctx, id, r)
	return nil
}

// reportNarrowed logs where a container did not get the CPUs that a plugin chose: others own
// some of them, or the agent gave it CPUs of its own.
func (h *Host) reportNarrowed(ctx context.Context, id string, r *cri.LinuxContainerResources) {
	if r.CpusetCpus == "" {
		return
	}
	s, err := h.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return
	}
	v, err := verboseIn(s.GetInfo())
	if err != nil || v.Spec == nil || v.Spec.Linux == nil || v.Spec.Linux.Resources == nil || v.Spec.Linux.Resources.CPU == nil {
		return
	}
	if has := v.Spec.Linux.Resources.CPU.Cpus; has != r.CpusetCpus {
		h.log.Warn("a container does not get the CPUs that NRI plugins chose; the agent's own grants go first",
			logkey.Container, id, logkey.Value, r.CpusetCpus, logkey.CPUs, has)
	}
}
