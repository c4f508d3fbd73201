package api

import "fmt"

// DeviceKind is a kind of CDI devices that the agent assigns exclusively: each device to one container.
type DeviceKind struct {
	Kind  string `json:"kind"`  // vendor/class
	Total int    `json:"total"` // devices in the node's specifications
	Used  int    `json:"used"`  // devices in the node's specifications that a container has
	// Owners has an entry for each device that a container has, sorted by the name of the device. It includes devices
	// that the specifications do not have any more.
	Owners []DeviceOwner `json:"owners,omitempty"`
}

// DeviceOwner is a CDI device and the container that has it.
type DeviceOwner struct {
	Device    string `json:"device"`    // the name of the device within its kind
	Container string `json:"container"` // namespace/pod/container
	// Gone means that the node's specifications do not have the device any more.
	Gone bool `json:"gone,omitempty"`
}

// maxOwners is the largest number of owners that the report lists for one kind of devices.
const maxOwners = 16

// addDeviceLines adds lines about each kind of CDI devices: how many are used, and by which containers.
func (n *Node) addDeviceLines(line addLine) {
	const label = "CDI devices"
	for _, k := range n.CDIDevices {
		if k.Total == 0 {
			line(label, k.Kind+": the node's CDI specifications have no device of this kind", Fault)
		} else {
			line(label, fmt.Sprintf("%s: %d of %d used", k.Kind, k.Used, k.Total), Info)
		}
		for i, of := range k.Owners {
			if i == maxOwners {
				line(label, fmt.Sprintf("%s: %d more devices are used", k.Kind, len(k.Owners)-i), Info)
				break
			}
			text := fmt.Sprintf("%s=%s: %s", k.Kind, of.Device, of.Container)
			if of.Gone {
				text += ", but no CDI specification has the device any more"
			}
			line(label, text, faultIf(of.Gone))
		}
	}
}
