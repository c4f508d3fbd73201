package nrihost

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/nriadjust"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// createContainer creates a container, and applies the adjustments of plugins. The CRI runtime stores an OCI spec of
// each created container. If the agent can change these specs, createContainer asks plugins after the creation.
// Otherwise it asks plugins before the creation.
func (h *Host) createContainer(ctx context.Context, method string, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	id, m := req.GetPodSandboxId(), req.GetConfig().GetMetadata()
	if h.hidden.hides(id) {
		return nil, notReady(id)
	}
	p := h.objects.pod(id)
	if p == nil || m == nil {
		return invoke[cri.CreateContainerResponse](ctx, h, method, req)
	}
	setID, reveal, ok := h.hidden.hide(containerKey(id, m))
	if !ok {
		return nil, status.Errorf(codes.AlreadyExists, "a call that creates container %s of pod sandbox %s is running already", m.GetName(), id)
	}
	defer reveal()
	if h.objects.isEnding(id) {
		return nil, status.Errorf(codes.FailedPrecondition, "create container %s: pod sandbox %q has stopped or stops now; create the container in another sandbox", m.GetName(), id)
	}
	if h.specStore == nil {
		return h.adjustBeforeCreation(ctx, method, req, p, setID)
	}
	entry, done := journalEntry{Pod: id, Name: m.GetName(), Attempt: m.GetAttempt()}, func() {}
	noPlugins := h.hasNoPlugins()
	if !noPlugins {
		done = h.journal.write(entry)
	}
	resp, err := invoke[cri.CreateContainerResponse](ctx, h, method, req)
	if err != nil {
		done()
		return nil, err
	}
	setID(resp.GetContainerId())
	if noPlugins && h.storeIfNoPlugins(resp.GetContainerId(), id, req.GetConfig()) {
		return resp, nil
	}
	if noPlugins { // a plugin connected in the meantime
		done = h.journal.write(entry)
	}
	ctx, cancel := withoutCancel(ctx)
	defer cancel()
	if err := h.adjustAfterCreation(ctx, resp.GetContainerId(), p); err != nil {
		h.removeContainerUntilGone(ctx, resp.GetContainerId(), done)
		return nil, err
	}
	done()
	return resp, nil
}

// storeIfNoPlugins stores a new container and returns true, if no plugin is connected. Otherwise it returns false.
// While it checks and stores, no plugin can finish its registration. So a plugin that registers later gets the
// container with NRI's Synchronize request.
func (h *Host) storeIfNoPlugins(id, pod string, c *cri.ContainerConfig) bool {
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	if !h.hasNoPlugins() {
		return false
	}
	msg := containerOfConfig(c, pod)
	msg.Id = id
	h.objects.addUndescribed(msg)
	return true
}

// adjustAfterCreation asks plugins about a container that the runtime has created, and applies the adjustments of the
// plugins.
func (h *Host) adjustAfterCreation(ctx context.Context, id string, p *api.PodSandbox) error {
	c, err := h.containerMessage(ctx, id, p.GetId())
	if err != nil {
		return status.Errorf(codes.Unavailable, "report the new container %s to NRI plugins: %v", id, err)
	}
	block := h.nri.BlockPluginSync()
	var resp *api.CreateContainerResponse
	req := &api.CreateContainerRequest{Pod: clone(p), Container: clone(c)}
	err = h.askPlugins("CreateContainer", func() (err error) {
		resp, err = h.nri.CreateContainer(ctx, req)
		return err
	})
	if err != nil {
		block.Unblock()
		return err
	}
	c, err = h.applyAdjustment(ctx, c, withRemovals(resp.GetAdjust(), c, req.GetContainer()))
	h.objects.addContainer(c)
	if err != nil {
		block.Unblock()
		h.notifyContainerRemoved(ctx, id)
		h.objects.remove(id)
		return status.Errorf(codes.FailedPrecondition, "apply the adjustment of NRI plugins to container %s: %v", id, err)
	}
	h.notify("PostCreateContainer", id, func() error {
		return h.nri.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: clone(p), Container: clone(c)})
	})
	block.Unblock()
	h.applyUpdates(ctx, resp.GetUpdate())
	return nil
}

// applyAdjustment applies an adjustment to a created container. Some of its resources can be changed by the CRI call
// UpdateContainerResources. applyAdjustment sends this call to the agent's CRI proxy. It writes all other fields of the
// adjustment into the OCI spec that the runtime stores. It returns the NRI message about the adjusted container, which
// plugins get with later events.
func (h *Host) applyAdjustment(ctx context.Context, c *api.Container, a *api.ContainerAdjustment) (*api.Container, error) {
	if isEmptyAdjustment(a) {
		return c, nil // nothing in the stored spec changes
	}
	a = clone(a)
	var unsupported []string
	var forCRI *cri.LinuxContainerResources
	if l := a.GetLinux(); l != nil {
		forCRI, l.Resources, unsupported = splitForCRI(l.Resources)
		if l.CgroupsPath != "" { // never changed, because the kubelet and the agent need the path that the runtime chose
			l.CgroupsPath, unsupported = "", append(unsupported, "linux.cgroups_path")
		}
	}
	if forCRI != nil {
		if _, err := h.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: c.GetId(), Linux: forCRI}); err != nil {
			return c, fmt.Errorf("update the resources of the container: %w", err)
		}
		h.warnIfCPUsDiffer(ctx, c.GetId(), forCRI)
	}
	spec, err := h.specStore.changeSpec(ctx, c.GetId(), func(s *specs.Spec) error {
		if unsupported = append(unsupported, nriadjust.Adjust(s, a)...); len(unsupported) > 0 && !h.opts.ReportUnsupported {
			return fmt.Errorf("the agent cannot apply %s with this runtime", strings.Join(unsupported, ", "))
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	if len(unsupported) > 0 {
		h.log.Warn("the agent cannot apply some fields that NRI plugins set for a container", logkey.Container, c.GetName(), logkey.Owner, c.GetId(), logkey.Field, strings.Join(unsupported, ", "))
	}
	n := clone(c)
	n.Annotations = nil
	addOCISpec(n, spec)
	for k, v := range c.GetAnnotations() {
		if _, has := n.Annotations[k]; !has && !removesAnnotation(a, k) {
			n.Annotations[k] = v
		}
	}
	return n, nil
}

// isEmptyAdjustment reports whether an adjustment changes nothing. If no plugin changed the container, the NRI library
// returns an adjustment with empty sections.
func isEmptyAdjustment(a *api.ContainerAdjustment) bool {
	if a == nil {
		return true
	}
	a = clone(a)
	if proto.Equal(a.Hooks, &api.Hooks{}) {
		a.Hooks = nil
	}
	l := a.Linux
	if l == nil {
		return proto.Equal(a, &api.ContainerAdjustment{})
	}
	if proto.Equal(l.Rdt, &api.LinuxRdt{}) {
		l.Rdt = nil
	}
	if r := l.Resources; r != nil {
		others := clone(r)
		others.Memory, others.Cpu = nil, nil
		if proto.Equal(others, &api.LinuxResources{}) && len(namesOfSetFields(r)) == 0 {
			l.Resources = nil
		}
	}
	if proto.Equal(l, &api.LinuxContainerAdjustment{}) {
		a.Linux = nil
	}
	return proto.Equal(a, &api.ContainerAdjustment{})
}

// removesAnnotation reports whether an adjustment removes an annotation.
func removesAnnotation(a *api.ContainerAdjustment, key string) bool {
	_, removed := a.GetAnnotations()[api.MarkForRemoval(key)]
	return removed
}

// removeContainerUntilGone removes a container that a plugin refused, or that the host could not report or adjust. If
// an attempt fails, the host tries again. After a success it calls done, which removes the journal entry of the
// creation. If all attempts fail, the next start of the agent removes the container.
func (h *Host) removeContainerUntilGone(ctx context.Context, id string, done func()) {
	for range maxRemovalAttempts {
		_, err := h.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
		if err == nil || status.Code(err) == codes.NotFound {
			done()
			return
		}
		h.log.Warn("the agent cannot remove a container that an NRI plugin refused; it tries again", logkey.Container, id, logkey.Err, err)
		if !sleep.For(ctx, removalPause) {
			return
		}
	}
}

// adjustBeforeCreation asks plugins about a container before its creation. It then sends the request with the plugins'
// changes to the runtime. Plugins see a provisional id, because the container has no id yet. When the runtime has
// reported the id, adjustBeforeCreation calls setID.
func (h *Host) adjustBeforeCreation(ctx context.Context, method string, req *cri.CreateContainerRequest, p *api.PodSandbox, setID func(string)) (*cri.CreateContainerResponse, error) {
	c := containerOfConfig(req.GetConfig(), p.GetId())
	c.Id = fmt.Sprintf("creating-%d", h.provisionalIDs.Add(1))
	block := h.nri.BlockPluginSync()
	defer block.Unblock()
	var answer *api.CreateContainerResponse
	nriReq := &api.CreateContainerRequest{Pod: clone(p), Container: clone(c)}
	err := h.askPlugins("CreateContainer", func() (err error) {
		answer, err = h.nri.CreateContainer(ctx, nriReq)
		return err
	})
	if err != nil {
		return nil, err
	}
	req = proto.Clone(req).(*cri.CreateContainerRequest)
	if unsupported := adjustConfig(req.GetConfig(), withRemovals(answer.GetAdjust(), c, nriReq.GetContainer())); len(unsupported) > 0 {
		if !h.opts.ReportUnsupported {
			return nil, status.Errorf(codes.FailedPrecondition, "apply the adjustment of NRI plugins to container %s: the CRI has no field for %s", c.GetName(), strings.Join(unsupported, ", "))
		}
		h.log.Warn("the agent cannot apply some fields that NRI plugins set for a container", logkey.Container, c.GetName(), logkey.Field, strings.Join(unsupported, ", "))
	}
	resp, err := invoke[cri.CreateContainerResponse](ctx, h, method, req)
	if err != nil {
		h.notify("RemoveContainer", c.GetId(), func() error {
			return h.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: clone(p), Container: clone(c)})
		})
		return nil, err
	}
	setID(resp.GetContainerId())
	c = containerOfConfig(req.GetConfig(), p.GetId())
	c.Id = resp.GetContainerId()
	h.objects.addContainer(c)
	h.notify("PostCreateContainer", c.GetId(), func() error {
		return h.nri.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: clone(p), Container: clone(c)})
	})
	h.applyUpdates(ctx, answer.GetUpdate())
	return resp, nil
}
