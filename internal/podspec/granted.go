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

// grantsOf reads an answer of the PodResources API, by pod and container. Pods
// and containers without devices are kept: that they have none is known.
func grantsOf(answer *podresources.ListPodResourcesResponse) (map[podName]map[string]lifecycle.DeviceGrant, error) {
	all := map[podName]map[string]lifecycle.DeviceGrant{}
	if len(answer.GetPodResources()) > maxPods {
		return nil, fmt.Errorf("more than %d pods", maxPods)
	}
	for _, p := range answer.GetPodResources() {
		name := podName{p.GetNamespace(), p.GetName()}
		if _, twice := all[name]; twice || name.namespace == "" || name.name == "" {
			return nil, fmt.Errorf("pod %.80q has no name, or that of another", name.namespace+"/"+name.name)
		}
		containers := map[string]lifecycle.DeviceGrant{}
		for _, c := range p.GetContainers() {
			if _, twice := containers[c.GetName()]; twice || c.GetName() == "" || len(containers) == maxContainers {
				return nil, fmt.Errorf("pod %.80q: a container has no name, or that of another, or there are too many", name.namespace+"/"+name.name)
			}
			grant, err := grantOf(c)
			if err != nil {
				return nil, fmt.Errorf("pod %.80q: %w", name.namespace+"/"+name.name, err)
			}
			containers[c.GetName()] = grant
		}
		all[name] = containers
	}
	return all, nil
}

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
