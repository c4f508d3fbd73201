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
	number    int // order of creation, shared by pods and containers
	pod       scenario.Pod
	resources scenario.Resources // directory of the pod's cgroup
	dir       string
	stopped   bool
}

// id makes a 64-digit id from the seed, the name and the number of earlier uses of the name, so that a scenario always
// has the same ids.
func (r *Runtime) id(parts ...string) string {
	h := sha256.New()
	for _, p := range append([]string{r.o.Seed}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// UID makes a pod UID from the pod's name, if the scenario has none.
func (r *Runtime) UID(ref scenario.Ref) string {
	h := r.id("uid", string(ref))
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
}

// SumResources returns what the kubelet sets on a pod's cgroup: the sums of shares and, if every container has one, of
// limits. A BestEffort pod has 2 shares and no limit.
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

// RunPodSandbox makes the pod's cgroup with the given resources, in place of the kubelet, and then the sandbox.
func (r *Runtime) RunPodSandbox(ctx context.Context, pod scenario.Pod, cgroup scenario.Resources) error {
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	p := &sandbox{ref: scenario.PodRef(pod.Namespace, pod.Name), pod: pod, resources: cgroup}
	if r.pods[p.ref] != nil {
		return fmt.Errorf("pod %s exists already", p.ref)
	}
	if p.pod.UID == "" {
		p.pod.UID = r.UID(p.ref)
	}
	r.made++
	p.number = r.made
	p.id = r.id("pod", string(p.ref), fmt.Sprint(p.number))
	p.dir = r.podDir(pod.QoS, p.pod.UID)
	if err := r.o.Kernel.MkdirRunc(p.dir); err != nil {
		return fmt.Errorf("pod %s: %w", p.ref, err)
	}
	err = r.apply(p.dir, r.podWrites(cgroup))
	if err == nil {
		err = nri.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: p.nri(r)})
		r.observe(Event{Kind: "RunPodSandbox", Ref: p.ref, Err: err})
		if err != nil {
			r.undoPod(ctx, nri, p)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("run pod %s: %w", p.ref, err), r.o.Kernel.Rmdir(p.dir))
	}
	r.pods[p.ref] = p
	return nil
}

// SetPodCgroup writes to a pod's cgroup like the kubelet, which resizes a pod without the runtime.
func (r *Runtime) SetPodCgroup(ref scenario.Ref, resources scenario.Resources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s: is not there", ref)
	}
	if err := r.apply(p.dir, r.podWrites(resources)); err != nil {
		return fmt.Errorf("pod %s: %w", ref, err)
	}
	return nil
}

// undoPod notifies plugins of the end of a sandbox that one of them refused.
func (r *Runtime) undoPod(ctx context.Context, nri *adaptation.Adaptation, p *sandbox) {
	err := errors.Join(
		nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: p.nri(r)}),
		nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: p.nri(r)}))
	if err != nil {
		r.o.Log.WarnContext(ctx, "undo of a pod", "pod", p.ref, "err", err)
	}
}

// StopPodSandbox stops the pod's containers and then the pod.
func (r *Runtime) StopPodSandbox(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s: is not there", ref)
	}
	return r.stopPod(ctx, nri, p)
}

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
	if p.stopped = true; r.o.Links != nil {
		r.o.Links.End(p.id)
	}
	err := nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: p.nri(r)})
	r.observe(Event{Kind: "StopPodSandbox", Ref: p.ref, Err: err})
	r.logOnly(ctx, "StopPodSandbox", err)
	return errors.Join(errs...)
}

// RemovePodSandbox stops and removes the pod and its containers, and then, in place of the kubelet, its cgroup.
func (r *Runtime) RemovePodSandbox(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	p := r.pods[ref]
	if p == nil {
		return fmt.Errorf("pod %s: is not there", ref)
	}
	errs := []error{r.stopPod(ctx, nri, p)}
	for _, c := range r.sortedContainers() {
		if c.pod == p {
			r.remove(ctx, nri, c)
		}
	}
	err = nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: p.nri(r)})
	r.observe(Event{Kind: "RemovePodSandbox", Ref: p.ref, Err: err})
	r.logOnly(ctx, "RemovePodSandbox", err)
	delete(r.pods, p.ref)
	return errors.Join(append(errs, r.o.Kernel.Rmdir(p.dir))...)
}

// logOnly logs the failure of an event that containerd also only logs.
func (r *Runtime) logOnly(ctx context.Context, event string, err error) {
	if err != nil {
		r.o.Log.WarnContext(ctx, "plugin failed an event", "event", event, "err", err)
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
	Dir       string // directory of its cgroup
	Stopped   bool
	PID       uint32
	Number    int // as in Info
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

// PodDir returns the cgroup of a pod by its QoS class and UID. The pod need not exist.
func (r *Runtime) PodDir(qos, uid string) string { return r.podDir(qos, uid) }

// PodState returns the effective state of the pod's own cgroup.
func (r *Runtime) PodState(ref scenario.Ref) (effective.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[ref]
	if p == nil {
		return effective.State{}, fmt.Errorf("pod %s: is not there", ref)
	}
	return effective.Cgroup(r.o.Kernel, r.v2(), p.dir)
}

func (r *Runtime) sortedPods() []*sandbox {
	return slices.SortedFunc(maps.Values(r.pods), func(a, b *sandbox) int { return a.number - b.number })
}

// nri returns the pod as NRI reports it. CgroupParent is the whole path, as from the kubelet with either driver.
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
