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
	Path     string // the name of the device in the topology hints of nri-plugins
	NearCPUs topology.Set
}

// PodResourcesPrefix begins the path of a device that the kubelet's PodResources API reports.
const PodResourcesPrefix = "podresourceapi:"

// LocatedDevices returns the granted devices whose nearest CPUs are known, sorted. It finds these CPUs by the
// NUMA nodes that the kubelet reports, by PCI addresses, and by the numbers of character devices.
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

func (d *locatedDevices) add(name, path string, near topology.Set) {
	if !near.Empty() {
		d.all = append(d.all, LocatedDevice{name, path, near})
	}
}

// addFunction adds a PCI function, if address is the address of one.
func (d *locatedDevices) addFunction(address, path string) {
	if dev, ok := d.machine.DeviceAt(address); ok && intent.IsPCIAddress(address) {
		d.add(address, path, d.machine.CPUsNear(dev))
	}
}

// addReported adds the devices of a grant that the kubelet reports with NUMA nodes. It also adds those whose
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

// addNodes adds the devices to which character device nodes belong.
func (d *locatedDevices) addNodes(nodes []lifecycle.Device) {
	for i := range nodes {
		n := &nodes[i]
		if dev, ok := d.machine.DeviceWithNumber(fmt.Sprintf("%d:%d", n.Major, n.Minor)); ok && n.Type == "c" {
			d.add(dev.Address, cmp.Or(n.Host, n.Path), d.machine.CPUsNear(dev))
		}
	}
}
