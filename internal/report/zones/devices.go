package zones

import "slices"

// Device is a device that pods can have.
type Device struct {
	Resource, ID string
	Zones        []int // ids of the zones that it is at; nil where nobody knows
}

// AddDevices adds devices to the zones that they are at, less those that Granted has.
// A device at several zones counts on each, as the kubelet gives it to pods of any of
// these; one at none counts on none, so that the scheduler counts it for the whole
// machine.
func (n *Node) AddDevices(all []Device) {
	for _, d := range all {
		owner, granted := n.Granted[d.Resource][d.ID]
		for i := range n.Zones {
			if !slices.Contains(d.Zones, n.Zones[i].ID) {
				continue
			}
			n.Zones[i].Add(Resource{Name: d.Resource, Capacity: 1, Allocatable: 1, Available: 1})
			if granted {
				n.Zones[i].Take(owner, d.Resource, 1)
			}
		}
	}
}
