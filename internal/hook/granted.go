package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// These texts describe how a container got a device without this hook.
const (
	grantedByRuntime = "granted: the runtime's request has it"
	grantedByKubelet = "granted by the kubelet as "
)

// These are the resources of NVIDIA's device plugin (0.17). The ids of nvidia.com/gpu are UUIDs or
// indexes of GPUs. The ids of nvidia.com/mig-* are UUIDs of MIG devices. The ids of shared GPUs have
// a suffix, so they never equal a name.
const (
	resourceGPU = "nvidia.com/gpu"
	resourceMIG = "nvidia.com/mig-"
)

// grantedGPU returns how a container got the GPU with a CDI name; "" if it did not get the GPU. It
// compares whole names, because a similar name is another device.
func (in *Input) grantedGPU(name string) string {
	cdi := cdiGPU + name
	switch {
	case name == "":
		return ""
	case slices.Contains(in.RequestedDevices.CDI, cdi):
		return grantedByRuntime
	case slices.Contains(in.GrantedDevices.CDI, cdi):
		return grantedByKubelet + "a CDI device"
	case slices.Contains(in.GrantedDevices.IDs[resourceGPU], name):
		return grantedByKubelet + resourceGPU
	case !strings.HasPrefix(name, "MIG-"):
		return ""
	}
	return in.grantedBy(resourceMIG, name)
}

// grantedBy returns how a container got the device with an id of a device plugin; "" if it did not get the device. It
// reads only resources whose names begin with the prefix.
func (in *Input) grantedBy(prefix, id string) string {
	for _, resource := range slices.Sorted(maps.Keys(in.GrantedDevices.IDs)) {
		if strings.HasPrefix(resource, prefix) && slices.Contains(in.GrantedDevices.IDs[resource], id) {
			return grantedByKubelet + intent.Printable(resource)
		}
	}
	return ""
}

// grantedNode returns how a container got a device node of the host; "" if it did not get the node.
// It compares major and minor numbers, because a path in the container proves nothing. So entries
// without numbers, as in the CRI, do not count.
func (in *Input) grantedNode(nodes map[string]lifecycle.Device, path string) string {
	host, has := nodes[path]
	if has && host.Type != "" && slices.ContainsFunc(in.RequestedDevices.Nodes, func(d lifecycle.Device) bool {
		return d.Type == host.Type && d.Major == host.Major && d.Minor == host.Minor
	}) {
		return grantedByRuntime
	}
	return ""
}

// checkGranted checks devices that a hook refuses unless Kubernetes granted them to the container. It
// returns how the container got the devices, or a problem if it did not get all of them.
func (in *Input) checkGranted(key string, names []string, proof func(string) string) (by string, no *lifecycle.Problem) {
	rule := in.Intent.OnlyGrantedRule
	missing := ""
	for _, name := range names {
		if by = proof(name); by == "" {
			missing = name
			break
		}
	}
	if by != "" {
		return "; " + by + " (authorization: " + rule + ")", nil
	}
	refused := in.unauthorizedProblem("devices", key, intent.Printable(missing), rule, ", and Kubernetes did not grant it to the container")
	return "", &refused
}
