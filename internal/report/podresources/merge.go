package podresources

import (
	"slices"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
)

// name identifies a pod in the API.
type name struct{ namespace, pod string }

// merge combines what containers own in the agent's state with the kubelet's report. It also lists pods that only
// one of the two knows. The order is the kubelet's, and then the agent's.
func merge(own []nodeview.PodHoldings, kubelet []*v1.PodResources, plugins Plugins) []*v1.PodResources {
	byName := make(map[name]*nodeview.PodHoldings, len(own))
	for i := range own {
		byName[name{own[i].Namespace, own[i].Name}] = &own[i]
	}
	out := make([]*v1.PodResources, 0, max(len(own), len(kubelet)))
	seen := make(map[name]bool, len(kubelet))
	for _, k := range kubelet {
		n := name{k.GetNamespace(), k.GetName()}
		seen[n] = true
		out = append(out, mergePod(byName[n], k, plugins))
	}
	for i := range own {
		if n := (name{own[i].Namespace, own[i].Name}); !seen[n] && byName[n] == &own[i] {
			out = append(out, mergePod(&own[i], nil, plugins))
		}
	}
	return out
}

// mergePod combines both reports of a pod; either may be nil.
func mergePod(own *nodeview.PodHoldings, k *v1.PodResources, plugins Plugins) *v1.PodResources {
	if own == nil {
		return k
	}
	// The agent passes on the kubelet's CPUs and memory of the pod as a whole.
	out := &v1.PodResources{Name: own.Name, Namespace: own.Namespace, CpuIds: k.GetCpuIds(), Memory: k.GetMemory()}
	out.Containers = make([]*v1.ContainerResources, 0, len(own.Containers))
	at := func(name string) int {
		return slices.IndexFunc(own.Containers, func(c nodeview.ContainerHoldings) bool { return c.Name == name })
	}
	for _, c := range k.GetContainers() {
		merged := &v1.ContainerResources{
			Name: c.GetName(), Devices: c.GetDevices(), DynamicResources: c.GetDynamicResources(), CpuIds: c.GetCpuIds(), Memory: c.GetMemory(),
		}
		if i := at(c.GetName()); i >= 0 {
			fill(merged, &own.Containers[i])
		}
		out.Containers = append(out.Containers, merged)
	}
	for i := range own.Containers {
		c := &own.Containers[i]
		if !c.Listed || slices.ContainsFunc(k.GetContainers(), func(k *v1.ContainerResources) bool { return k.GetName() == c.Name }) {
			continue
		}
		merged := &v1.ContainerResources{Name: c.Name}
		fill(merged, c)
		out.Containers = append(out.Containers, merged)
	}
	extendPod(out, own, plugins)
	return out
}

// fill sets the CPUs that a container owns in the agent's state. It also sets its memory if the kubelet's memory
// manager did not report that.
func fill(out *v1.ContainerResources, c *nodeview.ContainerHoldings) {
	out.CpuIds = ids(c.CPUs)
	if len(out.GetMemory()) == 0 {
		out.Memory = memory(c.Memory)
	}
}

func ids(cpus []int) []int64 {
	if len(cpus) == 0 {
		return nil
	}
	out := make([]int64, len(cpus))
	for i, id := range cpus {
		out[i] = int64(id)
	}
	return out
}

// memory has one entry for each type and NUMA node.
func memory(all []nodeview.MemoryHolding) []*v1.ContainerMemory {
	var out []*v1.ContainerMemory
	for _, m := range all {
		out = append(out, &v1.ContainerMemory{
			MemoryType: m.Type, Size: uint64(m.Bytes), //nolint:gosec // amounts are positive
			Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: int64(m.Node)}}},
		})
	}
	return out
}

// onlyDevices returns the usable parts of an older answer of the kubelet. CPUs and memory may have changed since,
// but the devices and claims of a pod never do. It leaves out pods that the agent no longer knows.
func onlyDevices(last []*v1.PodResources, own []nodeview.PodHoldings) []*v1.PodResources {
	lives := make(map[name]bool, len(own))
	for i := range own {
		lives[name{own[i].Namespace, own[i].Name}] = true
	}
	var out []*v1.PodResources
	for _, k := range last {
		if !lives[name{k.GetNamespace(), k.GetName()}] {
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
