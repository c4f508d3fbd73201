package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// DeviceUse is a CDI device that a container can have exclusively, with its owner.
type DeviceUse struct {
	Name  string // the qualified name: vendor/class=device
	Nodes []int  // the ids of the NUMA nodes near the device, ascending; nil if not known
	// Owner is the container that has the device, as namespace/pod/container; "" if the device is free.
	Owner string
	// NotInSpecs means that the node's CDI specifications no longer have the device.
	NotInSpecs bool
}

// DeviceKinds returns the kinds of CDI devices that containers can have exclusively, sorted; nil for none.
func (p *Policy) DeviceKinds() []string {
	g := p.deviceGiver()
	if g == nil {
		return nil
	}
	kinds := slices.Sorted(slices.Values(g.Kinds()))
	return slices.Compact(kinds)
}

// DeviceUses returns the devices that containers can have exclusively (DeviceKinds), sorted by name. nodeDevices are
// the node's CDI devices. Each physical device has one DeviceUse, even if it has several names. A device that a
// container has and that is missing in nodeDevices has a DeviceUse, too.
func (s *State) DeviceUses(nodeDevices []lifecycle.NodeDevice) (out []DeviceUse) {
	kinds := s.Policy.DeviceKinds()
	if len(kinds) == 0 {
		return nil
	}
	n := newDraft(s, Facts{}).n
	u := n.nodeDevices(nodeDevices, n.deviceOwners(func(placement.Key) bool { return false }))
	for _, kind := range kinds {
		for _, d := range u.singleDevices(kind) {
			use := DeviceUse{Name: d.Name, Nodes: s.NodesOfDevice(d)}
			if owner, taken := u.owner(d); taken {
				use.Owner = n.ownerName(owner)
			}
			out = append(out, use)
		}
	}
	for key, names := range s.Devices() {
		for _, name := range names {
			if u.byName[name] == nil && slices.Contains(kinds, lifecycle.KindOfCDI(name)) {
				out = append(out, DeviceUse{Name: name, Owner: n.ownerName(key), NotInSpecs: true})
			}
		}
	}
	slices.SortFunc(out, func(a, b DeviceUse) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// NodesOfDevice returns the ids of the NUMA nodes near a CDI device, ascending; nil if they are not known.
func (s *State) NodesOfDevice(d *lifecycle.NodeDevice) []int {
	return nodeIDs(s.Machine, nodesOfDevice(s.Machine, d))
}
