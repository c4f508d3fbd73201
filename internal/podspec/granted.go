package podspec

import (
	"errors"
	"fmt"
	"slices"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxDevices is the largest number of devices of one container.
const maxDevices = 65536

// maxID is above the highest id of a CPU or a NUMA node.
const maxID = 65536

// podGrants has what the PodResources API reports for one pod, by the name of the container.
type podGrants struct {
	devices map[string]lifecycle.DeviceGrant
	static  map[string]lifecycle.StaticGrant // CPUs and memory nodes
}

// parseGrants reads an answer of the PodResources API. all also has an entry for pods and containers without devices,
// because the caller must know that they have none. hasCPUs means that the kubelet's CPU manager assigns CPUs. A
// container without CPUs in the answer then has no exclusive CPUs. unread has the reasons why pods cannot be read, by
// the name of the pod. A pod without a name or namespace has the empty key, and can be any pod.
func parseGrants(answer *podresources.ListPodResourcesResponse, hasCPUs bool) (all map[podName]podGrants, unread map[podName]error, err error) {
	all, unread = map[podName]podGrants{}, map[podName]error{}
	if len(answer.GetPodResources()) > maxPods {
		return nil, nil, fmt.Errorf("the answer has more than %d pods", maxPods)
	}
	for _, p := range answer.GetPodResources() {
		name := podName{p.GetNamespace(), p.GetName()}
		_, twice := all[name]
		switch {
		case name.namespace == "" || name.name == "":
			unread[podName{}] = fmt.Errorf("the pod %.80q has no name or no namespace", name.namespace+"/"+name.name)
			continue
		case twice || unread[name] != nil:
			delete(all, name)
			unread[name] = fmt.Errorf("two pods have the name %.80q", name.namespace+"/"+name.name)
			continue
		}
		pod, err := parsePodGrants(p, hasCPUs)
		if err != nil {
			unread[name] = fmt.Errorf("pod %.80q: %w", name.namespace+"/"+name.name, err)
			continue
		}
		all[name] = pod
	}
	return all, unread, nil
}

// parsePodGrants reads the grants of one pod.
func parsePodGrants(p *podresources.PodResources, hasCPUs bool) (podGrants, error) {
	pod := podGrants{map[string]lifecycle.DeviceGrant{}, map[string]lifecycle.StaticGrant{}}
	for _, c := range p.GetContainers() {
		if _, twice := pod.devices[c.GetName()]; twice || c.GetName() == "" || len(pod.devices) == maxContainers {
			return podGrants{}, errors.New("a container has no name or the name of another container, or the pod has too many containers")
		}
		grant, err := parseDeviceGrant(c)
		if err != nil {
			return podGrants{}, err
		}
		pod.devices[c.GetName()] = grant
	}
	return pod, pod.readStatic(p, hasCPUs)
}

// readStatic reads the CPUs and memory nodes of a pod's containers. The pod as a whole can also have CPUs and memory
// nodes (Kubernetes 1.36, PodLevelResourceManagers), which include those of its containers. A container without CPUs of
// its own uses the remaining CPUs of the pod, together with other such containers.
func (g podGrants) readStatic(p *podresources.PodResources, hasCPUs bool) error {
	shared, err := parseIDs(p.GetCpuIds())
	if err != nil {
		return err
	}
	for _, c := range p.GetContainers() {
		s := lifecycle.StaticGrant{}
		if s.CPUs, err = parseIDs(c.GetCpuIds()); err != nil {
			return err
		}
		if s.Mems, err = memoryNodes(c.GetMemory()); err != nil {
			return err
		}
		g.static[c.GetName()] = s
		shared = slices.DeleteFunc(shared, func(id int) bool { return slices.Contains(s.CPUs, id) })
	}
	bound, err := memoryNodes(p.GetMemory())
	if err != nil {
		return err
	}
	for name, s := range g.static {
		if len(s.CPUs) == 0 {
			s.CPUs = shared
		}
		if len(s.Mems) == 0 {
			s.Mems = bound
		}
		s.Reported = hasCPUs || len(s.CPUs) > 0
		g.static[name] = s
	}
	return nil
}

// memoryNodes returns the NUMA nodes of all kinds of memory, as the kubelet writes them to cpuset.mems (Kubernetes
// 1.36, cm/memorymanager, GetMemoryNUMANodes).
func memoryNodes(blocks []*podresources.ContainerMemory) ([]int, error) {
	var ids []int64
	for _, m := range blocks {
		for _, n := range m.GetTopology().GetNodes() {
			ids = append(ids, n.GetID())
		}
	}
	return parseIDs(ids)
}

// parseIDs returns ids of CPUs or NUMA nodes in ascending order and without duplicates, or nil if there are none.
func parseIDs(ids []int64) ([]int, error) {
	if len(ids) > maxID {
		return nil, errBadID
	}
	var out []int
	for _, id := range ids {
		if id < 0 || id >= maxID {
			return nil, errBadID
		}
		out = append(out, int(id))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

var errBadID = errors.New("the id of a CPU or NUMA node is below 0 or too high, or there are too many ids")

// parseDeviceGrant reads the devices of one container.
func parseDeviceGrant(c *podresources.ContainerResources) (lifecycle.DeviceGrant, error) {
	out := lifecycle.DeviceGrant{CDI: claimCDIDevices(c)}
	names := slices.Clone(out.CDI)
	// A resource has several entries if its devices are on several NUMA nodes.
	for _, d := range c.GetDevices() {
		resource := d.GetResourceName()
		if out.IDs == nil {
			out.IDs = map[string][]string{}
		}
		out.IDs[resource] = append(out.IDs[resource], d.GetDeviceIds()...)
		names = append(append(names, resource), d.GetDeviceIds()...)
		for _, n := range d.GetTopology().GetNodes() {
			// A device plugin that does not know the NUMA node reports -1, or no node.
			if id := n.GetID(); id >= 0 && id <= maxNode && !slices.Contains(out.NUMA[resource], int(id)) {
				if out.NUMA == nil {
					out.NUMA = map[string][]int{}
				}
				out.NUMA[resource] = append(out.NUMA[resource], int(id))
			}
		}
	}
	if len(names) > maxDevices || slices.ContainsFunc(names, func(n string) bool { return n == "" || len(n) > maxName }) {
		return lifecycle.DeviceGrant{}, errBadDevice
	}
	return out, nil
}

// claimCDIDevices returns the names of the CDI devices of a container's resource claims.
func claimCDIDevices(c *podresources.ContainerResources) []string {
	var out []string
	for _, r := range c.GetDynamicResources() {
		for _, claim := range r.GetClaimResources() {
			for _, d := range claim.GetCdiDevices() {
				out = append(out, d.GetName())
			}
		}
	}
	return out
}

// maxNode is the highest id of a NUMA node of any kernel (NODES_SHIFT is at most 10).
const maxNode = 1023

var errBadDevice = errors.New("a device has no name or a name that is too long, or there are too many devices")
