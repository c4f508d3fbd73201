package podspec

import (
	"errors"
	"fmt"
	"slices"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxDevices bounds the devices of one container.
const maxDevices = 65536

// maxCPU is more than any id of a CPU or a NUMA node is.
const maxCPU = 65536

// given is what the PodResources API reports of one pod, by container.
type given struct {
	devices map[string]lifecycle.DeviceGrant
	static  map[string]lifecycle.StaticGrant
}

// grantsOf reads an answer of the PodResources API, by pod and container. Pods
// and containers without devices are kept: that they have none is known. hasCPUs says
// that a container without CPUs in the answer has none of its own, because the kubelet's
// CPU manager gives CPUs away. unread are pods that cannot be read, by name; one without
// a name may be any.
func grantsOf(answer *podresources.ListPodResourcesResponse, hasCPUs bool) (all map[podName]given, unread map[podName]error, err error) {
	all, unread = map[podName]given{}, map[podName]error{}
	if len(answer.GetPodResources()) > maxPods {
		return nil, nil, fmt.Errorf("more than %d pods", maxPods)
	}
	for _, p := range answer.GetPodResources() {
		name := podName{p.GetNamespace(), p.GetName()}
		_, twice := all[name]
		switch {
		case name.namespace == "" || name.name == "":
			unread[podName{}] = fmt.Errorf("pod %.80q has no name", name.namespace+"/"+name.name)
			continue
		case twice || unread[name] != nil:
			delete(all, name)
			unread[name] = fmt.Errorf("two pods have the name %.80q", name.namespace+"/"+name.name)
			continue
		}
		pod, err := givenTo(p, hasCPUs)
		if err != nil {
			unread[name] = fmt.Errorf("pod %.80q: %w", name.namespace+"/"+name.name, err)
			continue
		}
		all[name] = pod
	}
	return all, unread, nil
}

// givenTo reads what one pod was given.
func givenTo(p *podresources.PodResources, hasCPUs bool) (given, error) {
	pod := given{map[string]lifecycle.DeviceGrant{}, map[string]lifecycle.StaticGrant{}}
	for _, c := range p.GetContainers() {
		if _, twice := pod.devices[c.GetName()]; twice || c.GetName() == "" || len(pod.devices) == maxContainers {
			return given{}, errors.New("a container has no name, or that of another, or there are too many")
		}
		grant, err := grantOf(c)
		if err != nil {
			return given{}, err
		}
		pod.devices[c.GetName()] = grant
	}
	return pod, pod.readStatic(p, hasCPUs)
}

// readStatic reads the CPUs and memory nodes of a pod's containers. Those of the
// pod as a whole (Kubernetes 1.36, PodLevelResourceManagers) list those of its
// containers, too: a container that has none of its own shares what is left of them.
func (g given) readStatic(p *podresources.PodResources, hasCPUs bool) error {
	shared, err := idsOf(p.GetCpuIds())
	if err != nil {
		return err
	}
	for _, c := range p.GetContainers() {
		s := lifecycle.StaticGrant{}
		if s.CPUs, err = idsOf(c.GetCpuIds()); err != nil {
			return err
		}
		if s.Mems, err = nodesOf(c.GetMemory()); err != nil {
			return err
		}
		g.static[c.GetName()] = s
		shared = slices.DeleteFunc(shared, func(id int) bool { return slices.Contains(s.CPUs, id) })
	}
	bound, err := nodesOf(p.GetMemory())
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

// nodesOf lists the NUMA nodes of memory of all kinds, as the kubelet has them in
// cpuset.mems (Kubernetes 1.36, cm/memorymanager, GetMemoryNUMANodes).
func nodesOf(blocks []*podresources.ContainerMemory) ([]int, error) {
	var ids []int64
	for _, m := range blocks {
		for _, n := range m.GetTopology().GetNodes() {
			ids = append(ids, n.GetID())
		}
	}
	return idsOf(ids)
}

// idsOf sorts ids of CPUs or NUMA nodes; nil for none.
func idsOf(ids []int64) ([]int, error) {
	if len(ids) > maxCPU {
		return nil, errBadID
	}
	var out []int
	for _, id := range ids {
		if id < 0 || id >= maxCPU {
			return nil, errBadID
		}
		out = append(out, int(id))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

var errBadID = errors.New("a CPU or NUMA node has an id below 0 or too high, or there are too many")

func grantOf(c *podresources.ContainerResources) (lifecycle.DeviceGrant, error) {
	out := lifecycle.DeviceGrant{CDI: cdiOf(c)}
	names := slices.Clone(out.CDI)
	// A resource comes once for each NUMA node of its devices.
	for _, d := range c.GetDevices() {
		resource := d.GetResourceName()
		if out.IDs == nil {
			out.IDs = map[string][]string{}
		}
		out.IDs[resource] = append(out.IDs[resource], d.GetDeviceIds()...)
		names = append(append(names, resource), d.GetDeviceIds()...)
		for _, n := range d.GetTopology().GetNodes() {
			// A plugin that does not know says -1, if anything.
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

// cdiOf lists the CDI devices of a container's resource claims.
func cdiOf(c *podresources.ContainerResources) []string {
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

// maxNode is the highest NUMA node id of any kernel (NODES_SHIFT is 10 at most).
const maxNode = 1023

var errBadDevice = errors.New("a device without a name or with one too long, or too many devices")
