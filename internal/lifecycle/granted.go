package lifecycle

// DeviceGrants are the devices that Kubernetes itself gave a pod's containers,
// as the kubelet tells. They are replaced, not changed.
type DeviceGrants struct {
	UID       string
	Namespace string
	Name      string
	// Containers are the grants by container name.
	Containers map[string]DeviceGrant
}

// Of returns what a container was given, nothing where nobody told it.
func (g *DeviceGrants) Of(container string) DeviceGrant {
	if g == nil {
		return DeviceGrant{}
	}
	return g.Containers[container]
}

// DeviceGrant is what one container was given of devices.
type DeviceGrant struct {
	// CDI are names of CDI devices, vendor/class=name.
	CDI []string
	// IDs are a device plugin's ids of devices, by resource.
	IDs map[string][]string
	// Nodes are device nodes.
	Nodes []Device
	// NUMA are the ids of the NUMA nodes that device plugins told of devices, by
	// resource.
	NUMA map[string][]int
}
