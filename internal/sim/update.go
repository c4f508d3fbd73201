package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// UpdateContainer handles the kubelet's UpdateContainerResources with the resources of a scenario.
func (r *Runtime) UpdateContainer(ctx context.Context, ref scenario.Ref, requested scenario.Resources) error {
	return r.Update(ctx, ref, toNRI(requested))
}

// Update handles the kubelet's UpdateContainerResources. Like containerd, it replaces the request by the plugins'
// answer, and merges the result into the stored spec. It writes all resources of the stored spec to the kernel.
func (r *Runtime) Update(ctx context.Context, ref scenario.Ref, request *api.LinuxResources) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil || c.state == api.ContainerState_CONTAINER_STOPPED {
		return fmt.Errorf("update container %s: it does not exist or is stopped", ref)
	}
	answer, err := nri.UpdateContainer(ctx, &adaptation.UpdateContainerRequest{
		Pod: c.pod.nri(r), Container: c.nri(), LinuxResources: proto.CloneOf(request),
	})
	if err != nil {
		r.observe(Event{Kind: "UpdateContainer", Ref: ref, Err: err})
		return fmt.Errorf("update %s: %w", ref, err)
	}
	var others []*api.ContainerUpdate
	for _, u := range answer.GetUpdate() {
		switch {
		case u == nil: // no plugin answered
		case u.GetContainerId() == c.id:
			request = u.GetLinux().GetResources()
		default:
			others = append(others, u)
		}
	}
	r.notifySentUpdates(answer.GetUpdate(), c.id)
	changes, _ := r.applyUpdates(others)
	if err = r.opts.Kind.requestError(request); err == nil {
		err = r.updateStored(c, request)
	}
	changes = append(changes, Change{Ref: ref, Resources: request, Err: err})
	r.observe(Event{Kind: "UpdateContainer", Ref: ref, Updates: changes, Err: err})
	if err != nil {
		return fmt.Errorf("update %s: %w", ref, err)
	}
	err = nri.PostUpdateContainer(ctx, &adaptation.PostUpdateContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.logPluginError(ctx, "PostUpdateContainer", err)
	return nil
}

// applyUpdates applies the updates of a plugin. Like containerd, it ignores unknown containers. The result failed has
// the failed updates, except those with IgnoreFailure.
func (r *Runtime) applyUpdates(updates []*api.ContainerUpdate) (done []Change, failed []*api.ContainerUpdate) {
	for _, u := range updates {
		if u == nil {
			continue
		}
		c := r.byID(u.GetContainerId())
		if c == nil {
			continue
		}
		res := u.GetLinux().GetResources()
		err := r.opts.Kind.unsolicitedError(res)
		if err == nil {
			err = r.updateStored(c, res)
		}
		done = append(done, Change{Ref: c.ref, Resources: res, Err: err})
		if err != nil {
			r.opts.Log.Warn("the runtime cannot apply a plugin's update", "container", c.ref, "err", err)
			if !u.GetIgnoreFailure() {
				failed = append(failed, u)
			}
		}
	}
	return done, failed
}

// byID returns the container with an id; nil if there is none.
func (r *Runtime) byID(id string) *container {
	for _, c := range r.containers {
		if c.id == id {
			return c
		}
	}
	return nil
}

// updateStored merges resources into the stored spec of a container. If the container runs, it first writes them to the
// container's cgroup. If the kernel refuses a write, the spec does not change.
func (r *Runtime) updateStored(c *container, res *api.LinuxResources) error {
	if c.state == api.ContainerState_CONTAINER_STOPPED {
		return nil
	}
	stored := mergeResources(c.spec.Linux.Resources, res)
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		if err := r.applyWrites(c.dir, r.ociWrites(stored)); err != nil {
			return err
		}
	}
	c.spec.Linux.Resources = stored
	return nil
}

// mergeResources returns a copy of old with the values of res that containerd applies. containerd converts NRI
// resources to CRI resources. In CRI resources, 0 means unset, and fields for reservation, swap, pids and classes do
// not exist.
func mergeResources(old *specs.LinuxResources, res *api.LinuxResources) *specs.LinuxResources {
	n := *old
	n.CPU, n.Memory = &specs.LinuxCPU{}, &specs.LinuxMemory{}
	if old.CPU != nil {
		*n.CPU = *old.CPU
	}
	if old.Memory != nil {
		*n.Memory = *old.Memory
	}
	n.Unified = maps.Clone(old.Unified)
	if c := res.GetCpu(); c != nil {
		setNonZero(&n.CPU.Shares, c.GetShares().GetValue())
		setNonZero(&n.CPU.Quota, c.GetQuota().GetValue())
		setNonZero(&n.CPU.Period, c.GetPeriod().GetValue())
		if c.GetCpus() != "" {
			n.CPU.Cpus = c.GetCpus()
		}
		if c.GetMems() != "" {
			n.CPU.Mems = c.GetMems()
		}
	}
	setNonZero(&n.Memory.Limit, res.GetMemory().GetLimit().GetValue())
	// containerd appends huge page limits to the stored ones, and does not replace a limit of the same page size.
	n.HugepageLimits = slices.Clone(old.HugepageLimits)
	for _, h := range res.GetHugepageLimits() {
		n.HugepageLimits = append(n.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	for k, v := range res.GetUnified() {
		if n.Unified == nil {
			n.Unified = map[string]string{}
		}
		n.Unified[k] = v
	}
	return &n
}

// setNonZero sets a value, if v is not 0.
func setNonZero[T comparable](into **T, v T) {
	var zero T
	if v != zero {
		*into = &v
	}
}
