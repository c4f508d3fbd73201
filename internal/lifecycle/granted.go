package lifecycle

import "strings"

// Two values of Problem.Key. The first means that the agent does not have the spec of a pod yet. The second means that
// the agent does not know yet what the kubelet has assigned to the pod. The agent removes the problem when it gets the
// spec or the grants.
const (
	MissingSpecKey   = "podspec.kubelet"
	MissingGrantsKey = "podspec.kubelet.podResourcesSocket"
)

// KubeletGrants are the devices, CPUs and memory nodes that the kubelet gave to a pod's containers. It is
// immutable.
type KubeletGrants struct {
	UID       string
	Namespace string
	Name      string
	// Containers has the devices of each container, by container name.
	Containers map[string]DeviceGrant
	// Static has the CPUs and memory nodes of each container, by container name. Init containers that have
	// ended are not in the map, because the kubelet does not report them.
	Static map[string]StaticGrant
}

// DevicesOf returns the devices of a container; empty if they are unknown.
func (g *KubeletGrants) DevicesOf(container string) DeviceGrant {
	if g == nil {
		return DeviceGrant{}
	}
	return g.Containers[container]
}

// StaticGrantOf returns the CPUs and memory nodes of a container from the static CPU and memory managers;
// empty if they are unknown.
func (g *KubeletGrants) StaticGrantOf(container string) StaticGrant {
	if g == nil {
		return StaticGrant{}
	}
	return g.Static[container]
}

// DeviceGrant are the devices of one container.
type DeviceGrant struct {
	// CDI are names of CDI devices, vendor/class=name.
	CDI []string
	// IDs are the ids of those devices that a device plugin manages, by resource. The device plugin has chosen the ids.
	IDs map[string][]string
	// Nodes are device nodes.
	Nodes []Device
	// NUMA are the ids of the NUMA nodes of the devices, as device plugins reported them, by resource.
	NUMA map[string][]int
}

// KubeletDevice is a device that the kubelet can assign to a container.
type KubeletDevice struct {
	// Resource is the name of the extended resource. ID is the name that the device plugin gave the device.
	Resource, ID string
	// Nodes are the ids of the device's NUMA nodes, as its plugin reports them. nil means that the plugin does not
	// report them.
	Nodes []int
}

// NodeDevice is a device in the node's CDI specifications.
type NodeDevice struct {
	Name  string   // vendor/class=name
	Nodes []Device // the device nodes that a container with the device gets
}

// KindOfCDI returns the kind, vendor/class, in the qualified name of a CDI device.
func KindOfCDI(name string) string {
	kind, _, _ := strings.Cut(name, "=")
	return kind
}

// StaticGrant is the grant of the kubelet's static CPU and memory managers to one container.
type StaticGrant struct {
	// CPUs are the container's exclusive CPUs, as sorted kernel ids. Reported is false if the kubelet
	// reports no list of CPUs, not even an empty one.
	CPUs     []int
	Reported bool
	// Mems are the sorted ids of the memory nodes to which the memory manager bound the container; empty if
	// it bound the container to none.
	Mems []int
}

// PluginQuantity is the part of a PluginAmount that is on one NUMA node or socket. If this part is a device, Name and
// Type are the name and type of the device.
type PluginQuantity struct {
	Value       float64
	Node        uint64 // the number of the NUMA node or, if Socket is set, of the socket
	Name, Type  string
	Socket      bool
	Annotations map[string]string
}

// PluginAmount is the amount of one resource that a resource plugin has allocated for a container, or can allocate on
// the node.
type PluginAmount struct {
	Resource string
	// IsNodeResource and IsScalarResource are the fields with these names in the plugin API.
	IsNodeResource, IsScalarResource bool
	// Total is the whole amount, and ByNode has its parts. For an allocated amount, OtherTotal and OtherByNode are
	// the amounts at the container's creation. For an allocatable amount, they are the node's capacity.
	Total, OtherTotal   float64
	ByNode, OtherByNode []PluginQuantity
}
