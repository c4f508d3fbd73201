package zones

import "slices"

// Device is a device that pods can get.
type Device struct {
	Resource, ID string
	Zones        []int // ids of the device's zones; nil if they are unknown
}

// AddDevices adds devices to their zones. A device that a pod already has, according to n.Granted, is not available. A
// device with several zones counts in each of its zones, because the kubelet gives the device to pods in any of these
// zones. A device without a zone counts in no zone: the scheduler counts such a device for the whole node.
func (n *Node) AddDevices(all []Device) {
	for _, d := range all {
		owner, granted := n.Granted[d.Resource][d.ID]
		for i := range n.Zones {
			if !slices.Contains(d.Zones, n.Zones[i].ID) {
				continue
			}
			n.Zones[i].Add(Resource{Name: d.Resource, Capacity: 1, Allocatable: 1, Available: 1})
			if granted {
				n.Zones[i].Allocate(owner, d.Resource, 1)
			}
		}
	}
}
