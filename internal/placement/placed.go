package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// LocatedDevice is a device of a container, with the CPUs near it.
type LocatedDevice struct {
	Name     string // for users: the name of a resource, or the address of a PCI function
	Path     string // the name that nri-plugins uses for the device in topology hints
	NearCPUs topology.Set
}

// PodResourcesPrefix is the prefix of LocatedDevice.Path for devices that the kubelet's PodResources API reports.
const PodResourcesPrefix = "podresourceapi:"

// LocatedDevices returns the granted devices whose nearest CPUs are known, sorted. It finds the CPUs by the NUMA nodes
// that the kubelet reports for a device, by the device's PCI address, or by the number of its character device.
func LocatedDevices(m *topology.Machine, grants []lifecycle.DeviceGrant) []LocatedDevice {
	found := locatedDevices{machine: m}
	for i := range grants {
		found.addReported(&grants[i])
		found.addNodes(grants[i].Nodes)
	}
	slices.SortFunc(found.all, func(a, b LocatedDevice) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path), cmp.Compare(a.NearCPUs.First(), b.NearCPUs.First()))
	})
	return found.all
}

// locatedDevices collects the devices that LocatedDevices returns.
type locatedDevices struct {
	machine *topology.Machine
	all     []LocatedDevice
}

// add adds a device. It does nothing if near is empty.
func (d *locatedDevices) add(name, path string, near topology.Set) {
	if !near.Empty() {
		d.all = append(d.all, LocatedDevice{name, path, near})
	}
}

// addFunction adds the PCI function with an address. It does nothing if the machine has no such PCI function.
func (d *locatedDevices) addFunction(address, path string) {
	if dev, ok := d.machine.DeviceAt(address); ok && intent.IsPCIAddress(address) {
		d.add(address, path, d.machine.CPUsNear(dev))
	}
}

// addReported adds the devices of a grant that the kubelet reports with NUMA nodes. It also adds the devices whose
// resource id or CDI device name is a PCI address.
func (d *locatedDevices) addReported(g *lifecycle.DeviceGrant) {
	for resource, nodes := range g.NUMA {
		for _, id := range nodes {
			if n, ok := d.machine.Node(id); ok {
				d.add(resource, PodResourcesPrefix+resource, n.CPUs)
			}
		}
	}
	for resource, ids := range g.IDs {
		for _, id := range ids {
			d.addFunction(id, PodResourcesPrefix+resource)
		}
	}
	for _, name := range g.CDI {
		_, device, _ := strings.Cut(name, "=")
		d.addFunction(device, name)
	}
}

// addNodes adds the devices to which character device nodes, such as /dev/nvidia0, belong.
func (d *locatedDevices) addNodes(nodes []lifecycle.Device) {
	for i := range nodes {
		n := &nodes[i]
		if dev, ok := d.machine.DeviceWithNumber(fmt.Sprintf("%d:%d", n.Major, n.Minor)); ok && n.Type == "c" {
			d.add(dev.Address, cmp.Or(n.Host, n.Path), d.machine.CPUsNear(dev))
		}
	}
}
