package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// sandbox is a pod of the runtime.
type sandbox struct {
	ref       scenario.Ref
	id        string
	number    int // the position in the order in which all pods and containers were created
	pod       scenario.Pod
	resources scenario.Resources // the resources of the pod's cgroup at its creation
	dir       string             // the directory of the pod's cgroup
	stopped   bool
}

// newID makes a 64-digit id from the seed and the parts, so that a scenario always has the same ids.
func (r *Runtime) newID(parts ...string) string {
	h := sha256.New()
	for _, p := range append([]string{r.opts.Seed}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// UID returns the UID of a pod for which the scenario sets no UID. The UID is a hash of the pod's name.
func (r *Runtime) UID(ref scenario.Ref) string {
	h := r.newID("uid", string(ref))
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
}

// SumResources returns the resources that the kubelet sets on a pod's cgroup. They are the sum of the containers'
// shares, and the sum of the containers' limits if each container has a limit. A BestEffort pod has 2 shares and no
// limits.
func SumResources(qos string, containers []scenario.Container) scenario.Resources {
	two := uint64(2)
	if qos == "BestEffort" {
		return scenario.Resources{Shares: &two}
	}
	var shares uint64
	var quota, memory int64
	for _, c := range containers {
		shares += deref(c.Resources.Shares)
		// A container without a limit makes the pod unlimited.
		if q := deref(c.Resources.Quota); q > 0 && quota >= 0 {
			quota += q
		} else {
			quota = -1
		}
		if m := deref(c.Resources.Memory); m > 0 && memory >= 0 {
			memory += m
		} else {
			memory = -1
		}
	}
	sum := scenario.Resources{Shares: new(max(shares, 2))}
	if quota > 0 {
		sum.Quota = &quota
	}
	if memory > 0 {
		sum.Memory = &memory
	}
	return sum
}

// RunPodSandbox makes the pod's cgroup with the given resources and runs the sandbox. On a real node, the kubelet makes
// the cgroup.
func (r *Runtime) RunPodSandbox(ctx context.Context, pod scenario.Pod, resources scenario.Resources) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	p := &sandbox{ref: scenario.PodRef(pod.Namespace, pod.Name), pod: pod, resources: resources}
	if r.pods[p.ref] != nil {
		return fmt.Errorf("run pod %s: it already exists", p.ref)
	}
	if p.pod.UID == "" {
		p.pod.UID = r.UID(p.ref)
	}
	r.createdObjects++
	p.number = r.createdObjects
	p.id = r.newID("pod", string(p.ref), fmt.Sprint(p.number))
	p.dir = r.podDir(pod.QoS, p.pod.UID)
	if err := r.opts.Kernel.MkdirRunc(p.dir); err != nil {
		return fmt.Errorf("run pod %s: %w", p.ref, err)
	}
	err = r.applyWrites(p.dir, r.podWrites(resources))
	if err == nil {
		err = nri.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: p.nri(r)})
		r.observe(Event{Kind: "RunPodSandbox", Ref: p.ref, Err: err})
		if err != nil {
			r.notifyRefusedPod(ctx, nri, p)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("run pod %s: %w", p.ref, err), r.opts.Kernel.Rmdir(p.dir))
	}
	r.pods[p.ref] = p
	return nil
}

// SetPodCgroup sets the resources of a pod's cgroup. When a real kubelet resizes a pod, it writes to the pod's cgroup
// itself, without the runtime.
func (r *Runtime) SetPodCgroup(ref scenario.Ref, resources scenario.Resources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s does not exist", ref)
	}
	if err := r.applyWrites(p.dir, r.podWrites(resources)); err != nil {
		return fmt.Errorf("resize pod %s: %w", ref, err)
	}
	return nil
}

// notifyRefusedPod notifies all plugins of the end of a sandbox that one plugin refused.
func (r *Runtime) notifyRefusedPod(ctx context.Context, nri *adaptation.Adaptation, p *sandbox) {
	err := errors.Join(
		nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: p.nri(r)}),
		nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: p.nri(r)}))
	if err != nil {
		r.opts.Log.WarnContext(ctx, "a plugin failed to handle the end of a refused pod", "pod", p.ref, "err", err)
	}
}

// StopPodSandbox stops the pod's containers and then the pod.
func (r *Runtime) StopPodSandbox(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s does not exist", ref)
	}
	return r.stopPod(ctx, nri, p)
}

// stopPod stops a pod's containers and then the pod. The caller has called beginOperation.
func (r *Runtime) stopPod(ctx context.Context, nri *adaptation.Adaptation, p *sandbox) error {
	var errs []error
	for _, c := range r.sortedContainers() {
		if c.pod == p {
			errs = append(errs, r.stop(ctx, nri, c))
		}
	}
	if p.stopped {
		return errors.Join(errs...)
	}
	if p.stopped = true; r.opts.Links != nil {
		r.opts.Links.End(p.id)
	}
	err := nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: p.nri(r)})
	r.observe(Event{Kind: "StopPodSandbox", Ref: p.ref, Err: err})
	r.logPluginError(ctx, "StopPodSandbox", err)
	return errors.Join(errs...)
}

// RemovePodSandbox stops and removes the pod and its containers. It also removes the pod's cgroup; on a real node, the
// kubelet removes the cgroup.
func (r *Runtime) RemovePodSandbox(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s does not exist", ref)
	}
	errs := []error{r.stopPod(ctx, nri, p)}
	for _, c := range r.sortedContainers() {
		if c.pod == p {
			r.removeStopped(ctx, nri, c)
		}
	}
	err = nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: p.nri(r)})
	r.observe(Event{Kind: "RemovePodSandbox", Ref: p.ref, Err: err})
	r.logPluginError(ctx, "RemovePodSandbox", err)
	delete(r.pods, p.ref)
	return errors.Join(append(errs, r.opts.Kernel.Rmdir(p.dir))...)
}

// logPluginError logs the error that a plugin returned for an event. Like containerd, the runtime only logs this error
// and continues.
func (r *Runtime) logPluginError(ctx context.Context, event string, err error) {
	if err != nil {
		r.opts.Log.WarnContext(ctx, "a plugin failed to handle an event", "event", event, "err", err)
	}
}

// Pods returns all pods, oldest first.
func (r *Runtime) Pods() []scenario.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refs []scenario.Ref
	for _, p := range r.sortedPods() {
		refs = append(refs, p.ref)
	}
	return refs
}

// Sandbox describes a pod.
type Sandbox struct {
	Ref       scenario.Ref
	ID        string
	Pod       scenario.Pod
	Resources scenario.Resources
	Dir       string // the directory of the pod's cgroup
	Stopped   bool
	PID       uint32 // an invented process id
	Number    int    // the position in the order in which all pods and containers were created
}

// Sandboxes returns all pods, oldest first.
func (r *Runtime) Sandboxes() []Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Sandbox
	for _, p := range r.sortedPods() {
		all = append(all, Sandbox{p.ref, p.id, p.pod, p.resources, p.dir, p.stopped, uint32(1000 + p.number), p.number})
	}
	return all
}

// PodDir returns the cgroup directory of a pod with a QoS class and UID. The pod need not exist.
func (r *Runtime) PodDir(qos, uid string) string { return r.podDir(qos, uid) }

// PodState returns the effective state of the pod's own cgroup.
func (r *Runtime) PodState(ref scenario.Ref) (effective.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[ref]
	if p == nil {
		return effective.State{}, fmt.Errorf("pod %s does not exist", ref)
	}
	return effective.ReadCgroup(r.opts.Kernel, r.isV2(), p.dir)
}

// sortedPods returns all pods, oldest first.
func (r *Runtime) sortedPods() []*sandbox {
	return slices.SortedFunc(maps.Values(r.pods), func(a, b *sandbox) int { return a.number - b.number })
}

// nri returns the pod as NRI reports it. With both cgroup drivers, CgroupParent is the whole path of the pod's cgroup.
func (p *sandbox) nri(r *Runtime) *api.PodSandbox {
	res := toNRI(p.resources)
	return &api.PodSandbox{
		Id: p.id, Name: p.pod.Name, Uid: p.pod.UID, Namespace: p.pod.Namespace,
		Labels: maps.Clone(p.pod.Labels), Annotations: maps.Clone(p.pod.Annotations),
		RuntimeHandler: p.pod.Handler,
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/" + p.dir,
			CgroupsPath:  r.cgroupsPath(p.dir, p.id),
			PodResources: res,
			Resources:    &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(2))}},
			Namespaces:   []*api.LinuxNamespace{{Type: "pid"}, {Type: "network"}, {Type: "ipc"}, {Type: "uts"}, {Type: "mount"}},
		},
		Pid: uint32(1000 + p.number),
	}
}
