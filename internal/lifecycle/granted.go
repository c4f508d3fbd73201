package lifecycle

// Keys of problems that end when the late fact becomes known.
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

// StaticOf returns what the static CPU and memory managers gave a container; nothing if that is
// not known.
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

// StaticGrant is what the kubelet's static CPU and memory managers gave one
// container.
type StaticGrant struct {
	// CPUs are the exclusive CPUs of its pod, as sorted kernel ids. Reported is false if the
	// kubelet does not say whether there are any.
	CPUs     []int
	Reported bool
	// Mems are the memory nodes that it was bound to, as sorted kernel ids; empty if it was
	// bound to none.
	Mems []int
}
