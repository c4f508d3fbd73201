package lifecycle

// The keys of problems that end once a late fact is known.
const (
	LateSpec   = "podspec.kubelet"
	LateGrants = "podspec.kubelet.podResourcesSocket"
)

// KubeletGrants are what Kubernetes itself gave a pod's containers, as the kubelet
// reports. They are replaced, not changed.
type KubeletGrants struct {
	UID       string
	Namespace string
	Name      string
	// Containers are the devices by container name.
	Containers map[string]DeviceGrant
	// Static are the CPUs and memory nodes by container name. Init containers that
	// end are in neither: the kubelet does not report them.
	Static map[string]StaticGrant
}

// Of returns which devices a container was given, none if that is not known.
func (g *KubeletGrants) Of(container string) DeviceGrant {
	if g == nil {
		return DeviceGrant{}
	}
	return g.Containers[container]
}

// StaticOf returns what the static managers gave a container, nothing if that is
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
	// CPUs are those its pod has alone, as sorted kernel ids. Reported is false if
	// the kubelet does not say whether there are any.
	CPUs     []int
	Reported bool
	// Mems are the memory nodes it was bound to, as sorted kernel ids; none if it
	// was not.
	Mems []int
}
