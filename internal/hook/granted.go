package hook

import (
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// These texts describe how a container got a device from Kubernetes, before any hook gave it one.
const (
	grantedByRuntime = "granted: the runtime's request has the device"
	grantedByKubelet = "granted by the kubelet as "
)

// These are the resources of NVIDIA's device plugin (0.17). The ids of nvidia.com/gpu are UUIDs or
// indexes of GPUs. The ids of nvidia.com/mig-* are UUIDs of MIG devices. The ids of shared GPUs have
// a suffix, so they are never equal to the index or UUID of a GPU.
const (
	resourceGPU = "nvidia.com/gpu"
	resourceMIG = "nvidia.com/mig-"
)

// howGPUWasGranted returns how Kubernetes granted a GPU to the container; "" if Kubernetes did not grant the GPU. The
// parameter name is the GPU's index or UUID. howGPUWasGranted compares whole names, because a similar name is the name
// of another device.
func (in *Input) howGPUWasGranted(name string) string {
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
	return in.howKubeletGranted(resourceMIG, name)
}

// howKubeletGranted returns how the kubelet granted a device to the container; "" if the kubelet did not grant the
// device. The result names the resource with this id of a device. howKubeletGranted reads only resources whose names
// begin with prefix.
func (in *Input) howKubeletGranted(prefix, id string) string {
	for _, resource := range slices.Sorted(maps.Keys(in.GrantedDevices.IDs)) {
		if strings.HasPrefix(resource, prefix) && slices.Contains(in.GrantedDevices.IDs[resource], id) {
			return grantedByKubelet + intent.Printable(resource)
		}
	}
	return ""
}

// howNodeWasGranted returns how Kubernetes granted a device node of the host to the container; "" if Kubernetes did not
// grant it. howNodeWasGranted compares major and minor numbers, because the path in a container can be the path of any
// device. Device nodes without numbers, as in a CRI request, do not count.
func (in *Input) howNodeWasGranted(nodes map[string]lifecycle.Device, path string) string {
	host, has := nodes[path]
	if has && host.Type != "" && slices.ContainsFunc(in.RequestedDevices.Nodes, func(d lifecycle.Device) bool {
		return d.Type == host.Type && d.Major == host.Major && d.Minor == host.Minor
	}) {
		return grantedByRuntime
	}
	return ""
}

// checkGranted checks whether Kubernetes granted all devices in names to the container. If so, it returns a clause that
// says how. Otherwise it returns a problem that names a missing device. The function howGranted returns how one device
// was granted; "" if it was not granted.
func (in *Input) checkGranted(key string, names []string, howGranted func(name string) string) (by string, refused *lifecycle.Problem) {
	rule := in.Intent.OnlyGrantedRule
	missing := ""
	for _, name := range names {
		if by = howGranted(name); by == "" {
			missing = name
			break
		}
	}
	if by != "" {
		return "; " + by + " (authorization: " + rule + ")", nil
	}
	p := in.unauthorizedProblem("devices", key, intent.Printable(missing), rule, ", and Kubernetes did not grant it to the container")
	return "", &p
}
