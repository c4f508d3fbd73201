package podresources

import (
	"slices"
	"strings"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
)

// podName identifies a pod in the API.
type podName struct{ namespace, pod string }

// merge combines the resources of containers in the agent's state with the kubelet's report. It includes pods that only
// the agent or only the kubelet knows. The kubelet's pods come first, in the order of the kubelet's report.
func merge(own []nodeview.PodHoldings, kubelet []*v1.PodResources, plugins Plugins) []*v1.PodResources {
	byName := make(map[podName]*nodeview.PodHoldings, len(own))
	for i := range own {
		byName[podName{own[i].Namespace, own[i].Name}] = &own[i]
	}
	out := make([]*v1.PodResources, 0, max(len(own), len(kubelet)))
	seen := make(map[podName]bool, len(kubelet))
	for _, k := range kubelet {
		n := podName{k.GetNamespace(), k.GetName()}
		seen[n] = true
		out = append(out, mergePod(byName[n], k, plugins))
	}
	for i := range own {
		if n := (podName{own[i].Namespace, own[i].Name}); !seen[n] && byName[n] == &own[i] {
			out = append(out, mergePod(&own[i], nil, plugins))
		}
	}
	return out
}

// mergePod combines own, the agent's state of a pod, with k, the kubelet's report about the pod. One of them may be
// nil.
func mergePod(own *nodeview.PodHoldings, k *v1.PodResources, plugins Plugins) *v1.PodResources {
	if own == nil {
		return k
	}
	// Only the kubelet reports CPUs and memory of the pod as a whole.
	out := &v1.PodResources{Name: own.Name, Namespace: own.Namespace, CpuIds: k.GetCpuIds(), Memory: k.GetMemory()}
	out.Containers = make([]*v1.ContainerResources, 0, len(own.Containers))
	for _, c := range k.GetContainers() {
		merged := &v1.ContainerResources{
			Name: c.GetName(), Devices: c.GetDevices(), DynamicResources: c.GetDynamicResources(), CpuIds: c.GetCpuIds(), Memory: c.GetMemory(),
		}
		if i := slices.IndexFunc(own.Containers, func(o nodeview.ContainerHoldings) bool { return o.Name == c.GetName() }); i >= 0 {
			fillContainer(merged, &own.Containers[i])
		}
		out.Containers = append(out.Containers, merged)
	}
	for i := range own.Containers {
		c := &own.Containers[i]
		if !c.Listed || slices.ContainsFunc(k.GetContainers(), func(k *v1.ContainerResources) bool { return k.GetName() == c.Name }) {
			continue
		}
		merged := &v1.ContainerResources{Name: c.Name}
		fillContainer(merged, c)
		out.Containers = append(out.Containers, merged)
	}
	addKatalystFields(out, own, plugins)
	return out
}

// fillContainer sets the CPUs of a container from the agent's state, and adds the agent's CDI devices. It also sets the
// memory if the kubelet's memory manager did not report any.
func fillContainer(out *v1.ContainerResources, c *nodeview.ContainerHoldings) {
	out.CpuIds = int64IDs(c.CPUs)
	out.Devices = append(slices.Clip(out.GetDevices()), containerDevices(c.Devices)...)
	if len(out.GetMemory()) == 0 {
		out.Memory = containerMemory(c.Memory)
	}
}

// containerDevices returns an entry for each CDI device. The kind of the device is the resource name, and the name of
// the device is the device id.
func containerDevices(all []nodeview.DeviceHolding) (out []*v1.ContainerDevices) {
	for _, d := range all {
		kind, id, _ := strings.Cut(d.Name, "=")
		one := &v1.ContainerDevices{ResourceName: kind, DeviceIds: []string{id}}
		if len(d.Nodes) > 0 {
			one.Topology = &v1.TopologyInfo{}
		}
		for _, node := range d.Nodes {
			one.Topology.Nodes = append(one.Topology.Nodes, &v1.NUMANode{ID: int64(node)})
		}
		out = append(out, one)
	}
	return out
}

// int64IDs converts ids of CPUs to the type of the API.
func int64IDs(cpus []int) (out []int64) {
	for _, id := range cpus {
		out = append(out, int64(id))
	}
	return out
}

// containerMemory returns an entry for each type of memory and NUMA node.
func containerMemory(all []nodeview.MemoryHolding) []*v1.ContainerMemory {
	var out []*v1.ContainerMemory
	for _, m := range all {
		out = append(out, &v1.ContainerMemory{
			MemoryType: m.Type, Size: uint64(m.Bytes), //nolint:gosec // amounts are positive
			Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: int64(m.Node)}}},
		})
	}
	return out
}

// onlyDevices returns the devices and resource claims from last, an older answer of the kubelet. They are still true,
// because the devices and claims of a pod never change. It leaves out CPUs and memory, which possibly have changed. It
// also leaves out pods that are not in own, the pods that the agent knows.
func onlyDevices(last []*v1.PodResources, own []nodeview.PodHoldings) []*v1.PodResources {
	lives := make(map[podName]bool, len(own))
	for i := range own {
		lives[podName{own[i].Namespace, own[i].Name}] = true
	}
	var out []*v1.PodResources
	for _, k := range last {
		if !lives[podName{k.GetNamespace(), k.GetName()}] {
			continue
		}
		pod := &v1.PodResources{Name: k.GetName(), Namespace: k.GetNamespace()}
		for _, c := range k.GetContainers() {
			pod.Containers = append(pod.Containers, &v1.ContainerResources{Name: c.GetName(), Devices: c.GetDevices(), DynamicResources: c.GetDynamicResources()})
		}
		out = append(out, pod)
	}
	return out
}
