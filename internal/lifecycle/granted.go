package lifecycle

// Keys of problems about a missing fact. The problem ends when the fact becomes known.
const (
	LateSpec   = "podspec.kubelet"
	LateGrants = "podspec.kubelet.podResourcesSocket"
)

// KubeletGrants are the devices, CPUs and memory nodes that the kubelet gave to a pod's
// containers. A value is never changed, only replaced.
type KubeletGrants struct {
	UID       string
	Namespace string
	Name      string
	// Containers are the devices by container name.
	Containers map[string]DeviceGrant
	// Static has the CPUs and memory nodes by container name. The kubelet does not report init
	// containers that have ended.
	Static map[string]StaticGrant
}

// Of returns the devices of a container; none if they are not known.
func (g *KubeletGrants) Of(container string) DeviceGrant {
	if g == nil {
		return DeviceGrant{}
	}
	return g.Containers[container]
}

// StaticOf returns the grant of the static CPU and memory managers to a container; empty if it
// is not known.
func (g *KubeletGrants) StaticOf(container string) StaticGrant {
	if g == nil {
		return StaticGrant{}
	}
	return g.Static[container]
}

// DeviceGrant are the devices of one container.
type DeviceGrant struct {
	// CDI are names of CDI devices, vendor/class=name.
	CDI []string
	// IDs are a device plugin's ids of devices, by resource.
	IDs map[string][]string
	// Nodes are device nodes.
	Nodes []Device
	// NUMA are the ids of the NUMA nodes that device plugins reported for devices,
	// by resource.
	NUMA map[string][]int
}

// StaticGrant is the grant of the kubelet's static CPU and memory managers to one container.
type StaticGrant struct {
	// CPUs are the exclusive CPUs of its pod, as sorted kernel ids. Reported is false if the
	// kubelet reports no list of CPUs, not even an empty one.
	CPUs     []int
	Reported bool
	// Mems are the ids of the memory nodes to which the container was bound, sorted; empty if it
	// was not bound.
	Mems []int
}
