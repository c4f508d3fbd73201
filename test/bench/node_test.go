package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// The classes of containers: batch work, an online service with a GPU, and one with an exclusive CPU.
type class int

const (
	batch class = iota
	shared
	exclusive
)

// allCPUs is the initial cpuset of a cgroup on the described machine.
const allCPUs = "0-63"

// unit is a pod with one container, as the runtime reports them.
type unit struct {
	class class
	pod   *api.PodSandbox
	ctr   *api.Container
}

// parents are the kubelet's cgroups for the classes.
var parents = [...]string{batch: "kubepods-besteffort", shared: "kubepods-burstable", exclusive: "kubepods"}

// newUnit makes the i-th pod. A scheduler has assigned cpu to a pod of class exclusive.
func newUnit(i int, c class, cpu int) *unit {
	uid := fmt.Sprintf("5f0c64a8-7d1e-4e6b-9a37-%012x", i)
	slice := parents[c] + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	parent := "/kubepods.slice/"
	if c != exclusive {
		parent += parents[c] + ".slice/"
	}
	name := fmt.Sprintf("app-6d5f9c7b8-%05x", i)
	u := &unit{class: c, pod: &api.PodSandbox{
		Id: fmt.Sprintf("b0d%061x", i), Name: name, Uid: uid, Namespace: "default", RuntimeHandler: "runc",
		Labels: map[string]string{
			"app.kubernetes.io/name": "app", "app.kubernetes.io/instance": "app-production", "pod-template-hash": "6d5f9c7b8",
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": uid,
		},
		Annotations: map[string]string{
			"kubernetes.io/config.seen": "2026-11-21T08:15:30.123456789Z", "kubernetes.io/config.source": "api",
			"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
		},
		Linux: &api.LinuxPodSandbox{
			CgroupParent: parent + slice, CgroupsPath: slice + ":cri-containerd:" + fmt.Sprintf("b0d%061x", i),
			Namespaces: namespaces(), Resources: &api.LinuxResources{},
		},
	}}
	u.ask(cpu)
	u.ctr = container(i, u.pod, slice)
	return u
}

// ask sets the pod's annotations like Koordinator's scheduler.
func (u *unit) ask(cpu int) {
	label, notes := u.pod.Labels, u.pod.Annotations
	switch u.class {
	case batch:
		label["koordinator.sh/qosClass"] = "BE"
		notes["node.koordinator.sh/extended-resource-spec"] = `{"containers":{"app":{` +
			`"requests":{"kubernetes.io/batch-cpu":"1500","kubernetes.io/batch-memory":"3Gi"},` +
			`"limits":{"kubernetes.io/batch-cpu":"2000","kubernetes.io/batch-memory":"3Gi"}}}}`
	case shared:
		label["koordinator.sh/qosClass"] = "LS"
		notes["scheduling.koordinator.sh/device-allocated"] = `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}},{"minor":1}]}`
	case exclusive:
		label["koordinator.sh/qosClass"] = "LSR"
		notes["scheduling.koordinator.sh/resource-status"] = fmt.Sprintf(`{"cpuset":"%d"}`, cpu)
		// A pod owns no more CPUs than its requests pay for.
		u.pod.Linux.PodResources = &api.LinuxResources{Cpu: &api.LinuxCPU{
			Shares: &api.OptionalUInt64{Value: 1024}, Quota: &api.OptionalInt64{Value: 100000}, Period: &api.OptionalUInt64{Value: 100000},
		}}
	}
}

func namespaces() []*api.LinuxNamespace {
	var out []*api.LinuxNamespace
	for _, ns := range []string{"pid", "ipc", "uts", "mount", "network"} {
		out = append(out, &api.LinuxNamespace{Type: ns, Path: "/proc/12345/ns/" + ns})
	}
	return out
}

// container returns an ordinary container as containerd reports it, about 4 kB.
func container(i int, pod *api.PodSandbox, slice string) *api.Container {
	id := fmt.Sprintf("c%063x", i)
	c := &api.Container{
		Id: id, PodSandboxId: pod.Id, Name: "app", State: api.ContainerState_CONTAINER_CREATED, CreatedAt: int64(i),
		Labels: map[string]string{
			"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": pod.Name,
			"io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": pod.Uid,
		},
		Annotations: map[string]string{
			"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.container-type": "container",
			"io.kubernetes.cri.image-name": "registry.example/team/app:1.42.0", "io.kubernetes.cri.sandbox-id": pod.Id,
			"io.kubernetes.cri.sandbox-name": pod.Name, "io.kubernetes.cri.sandbox-namespace": pod.Namespace,
			"io.kubernetes.cri.sandbox-uid": pod.Uid,
		},
		Args: []string{"/usr/local/bin/app", "--listen=:8080", "--config=/etc/app/config.yaml"},
		Linux: &api.LinuxContainer{
			Namespaces: namespaces(), OomScoreAdj: &api.OptionalInt{Value: 1000},
			CgroupsPath: slice + ":cri-containerd:" + id,
			Resources: &api.LinuxResources{
				Cpu: &api.LinuxCPU{
					Shares: &api.OptionalUInt64{Value: 2}, Quota: &api.OptionalInt64{}, Period: &api.OptionalUInt64{Value: 100000},
				},
				Memory:  &api.LinuxMemory{Limit: &api.OptionalInt64{}},
				Devices: []*api.LinuxDeviceCgroup{{Access: "rwm"}, {Allow: true, Type: "c", Access: "m"}},
			},
		},
		User: &api.User{Uid: 1000, Gid: 1000}, Image: &api.Image{Name: "registry.example/team/app:1.42.0"},
	}
	for n := range 18 {
		c.Env = append(c.Env, fmt.Sprintf("APP_SERVICE_%d_PORT_8080_TCP=tcp://10.96.0.%d:8080", n, n))
	}
	for n := range 9 {
		c.Mounts = append(c.Mounts, &api.Mount{
			Destination: fmt.Sprintf("/var/run/secrets/example/%d", n), Type: "bind", Options: []string{"rbind", "rprivate", "ro"},
			Source: fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~projected/%d", pod.Uid, n),
		})
	}
	return c
}

// take applies a plugin's answer to a container, like a runtime.
func (u *unit) take(a *api.ContainerAdjustment) {
	if a == nil {
		return
	}
	for _, e := range a.Env {
		u.ctr.Env = append(u.ctr.Env, e.Key+"="+e.Value)
	}
	for k, v := range a.Annotations {
		u.ctr.Annotations[k] = v
	}
	u.update(a.GetLinux().GetResources())
}

func (u *unit) update(r *api.LinuxResources) {
	have := u.ctr.Linux.Resources
	proto.Merge(have, &api.LinuxResources{Cpu: r.GetCpu()})
	if m := r.GetMemory(); m != nil {
		have.Memory = m
	}
}

// tree is a directory with the files of a cgroup version 2 hierarchy.
type tree string

// makePod makes a pod's cgroup like the kubelet.
func (t tree) makePod(u *unit) error {
	dir := filepath.Join(string(t), u.pod.Linux.CgroupParent)
	return t.fill(dir, &api.LinuxResources{}, false)
}

// makeContainer makes a container's cgroup like the runtime.
func (t tree) makeContainer(u *unit) error { return t.fill(t.dir(u), u.ctr.Linux.Resources, true) }

func (t tree) dir(u *unit) string {
	id := u.ctr.Linux.CgroupsPath
	return filepath.Join(string(t), u.pod.Linux.CgroupParent, "cri-containerd-"+id[strings.LastIndexByte(id, ':')+1:]+".scope")
}

// fill writes the files that the agent may read. A leaf's cpuset.cpus.effective is the same file as its cpuset.cpus,
// since no kernel computes it.
func (t tree) fill(dir string, r *api.LinuxResources, leaf bool) error {
	quota, memory, cpus := "max", "max", allCPUs
	if v := r.GetCpu().GetQuota().GetValue(); v > 0 {
		quota = strconv.FormatInt(v, 10)
	}
	if v := r.GetMemory().GetLimit().GetValue(); v > 0 {
		memory = strconv.FormatInt(v, 10)
	}
	if v := r.GetCpu().GetCpus(); v != "" {
		cpus = v
	}
	shares := max(int64(r.GetCpu().GetShares().GetValue()), 2)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"cpu.weight": strconv.FormatInt(cgroup.Weight(shares), 10), "cpu.max": quota + " 100000", "memory.max": memory, "cpuset.cpus": cpus,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), padded(text), 0o644); err != nil {
			return err
		}
	}
	if !leaf {
		return os.WriteFile(filepath.Join(dir, "cpuset.cpus.effective"), padded(allCPUs), 0o644)
	}
	err := os.Link(filepath.Join(dir, "cpuset.cpus"), filepath.Join(dir, "cpuset.cpus.effective"))
	if os.IsExist(err) {
		return nil
	}
	return err
}

func (t tree) remove(u *unit) error {
	return os.RemoveAll(filepath.Join(string(t), u.pod.Linux.CgroupParent))
}
