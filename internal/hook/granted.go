package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Texts for how a container got a device, if not through this hook.
const (
	byRuntime = "granted: the runtime's request has it"
	byKubelet = "granted by the kubelet as "
)

// Names of the resources of NVIDIA's device plugin (0.17). Ids of the first resource are UUIDs
// or indexes of GPUs. Ids of the second are UUIDs of MIG devices. Ids of shared GPUs have a
// suffix, so they equal no name.
const (
	resourceGPU = "nvidia.com/gpu"
	resourceMIG = "nvidia.com/mig-"
)

// grantedGPU returns how a container got a GPU with a CDI name; "" if it did not get it. Names
// must be equal: a similar name is another device.
func (in *Input) grantedGPU(name string) string {
	cdi := cdiGPU + name
	switch {
	case name == "":
		return ""
	case slices.Contains(in.RequestedDevices.CDI, cdi):
		return byRuntime
	case slices.Contains(in.Granted.CDI, cdi):
		return byKubelet + "a CDI device"
	case slices.Contains(in.Granted.IDs[resourceGPU], name):
		return byKubelet + resourceGPU
	case !strings.HasPrefix(name, "MIG-"):
		return ""
	}
	for _, resource := range slices.Sorted(maps.Keys(in.Granted.IDs)) {
		if strings.HasPrefix(resource, resourceMIG) && slices.Contains(in.Granted.IDs[resource], name) {
			return byKubelet + intent.Printable(resource)
		}
	}
	return ""
}

// grantedNode returns how a container got a device node of the host; "" if it did not get it.
// Major and minor number identify the device, not its path in the container, so an entry without
// numbers, as in the CRI, does not count.
func (in *Input) grantedNode(nodes map[string]lifecycle.Device, path string) string {
	host, has := nodes[path]
	if has && host.Type != "" && slices.ContainsFunc(in.RequestedDevices.Nodes, func(d lifecycle.Device) bool {
		return d.Type == host.Type && d.Major == host.Major && d.Minor == host.Minor
	}) {
		return byRuntime
	}
	return ""
}

// grantedFunction returns how a container got the function of a card at a PCI address; "" if it
// did not get it. Device plugins of network cards use addresses as ids, each plugin under its
// own resource names. An address is the same function for all plugins.
func (in *Input) grantedFunction(address string) string {
	for _, resource := range slices.Sorted(maps.Keys(in.Granted.IDs)) {
		if slices.Contains(in.Granted.IDs[resource], address) {
			return byKubelet + intent.Printable(resource)
		}
	}
	return ""
}

// granted checks devices that the hook refuses unless Kubernetes granted them to the container.
// It returns how the container got all of them, or a problem. A request is granted completely or
// not at all.
func (in *Input) granted(key string, names []string, proof func(string) string) (by string, no *lifecycle.Problem) {
	rule := in.Intent.OnlyGranted
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
	return "", &lifecycle.Problem{
		Key: key, Value: intent.Printable(missing), Refused: true, Rule: rule,
		Reason: "devices: pods of namespace " + intent.Printable(in.Pod.Namespace) +
			" may not ask for it, and Kubernetes did not grant it to the container (authorization: " + rule + ")",
	}
}
