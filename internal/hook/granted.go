package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// How a container got a device other than by this hook.
const (
	byRuntime = "granted: it is in the runtime's request"
	byKubelet = "granted by the kubelet as "
)

// Names of the resources of NVIDIA's device plugin (0.17): ids of the first are
// UUIDs or indexes of GPUs, those of the second UUIDs of their MIG parts. Ids
// of shared ones have more to them and equal no name.
const (
	resourceGPU = "nvidia.com/gpu"
	resourceMIG = "nvidia.com/mig-"
)

// grantedGPU says by what a container has a GPU by CDI name, "" where by
// nothing. Names are compared as they are: what is only alike is another device.
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

// grantedNode says how a container got a device node of the host, "" where it has
// none. Major and minor number identify the device, not its path in the container:
// an entry without numbers, as in the CRI, does not count.
func (in *Input) grantedNode(nodes map[string]lifecycle.Device, path string) string {
	host, has := nodes[path]
	if has && host.Type != "" && slices.ContainsFunc(in.RequestedDevices.Nodes, func(d lifecycle.Device) bool {
		return d.Type == host.Type && d.Major == host.Major && d.Minor == host.Minor
	}) {
		return byRuntime
	}
	return ""
}

// grantedFunction says by what a container has the function of a card at a PCI
// address, "" where by nothing. Device plugins of network cards take addresses
// for ids, each under resources of its own; an address is one function,
// whatever it counts as.
func (in *Input) grantedFunction(address string) string {
	for _, resource := range slices.Sorted(maps.Keys(in.Granted.IDs)) {
		if slices.Contains(in.Granted.IDs[resource], address) {
			return byKubelet + intent.Printable(resource)
		}
	}
	return ""
}

// granted is the decision on devices that are refused unless the container has
// been granted them: by what it has all of them, or what is wrong where it has
// not. Nothing of a claim is partly granted.
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
		return "; " + by + " (authorisation: " + rule + ")", nil
	}
	return "", &lifecycle.Problem{
		Key: key, Value: intent.Printable(missing), Refused: true, Rule: rule,
		Reason: "devices: pods of namespace " + intent.Printable(in.Pod.Namespace) +
			" may not ask for it, and Kubernetes did not grant it to the container (authorisation: " + rule + ")",
	}
}
