package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// preferences returns the preferences for n CPUs, the most important first. The allocator skips a preference that
// leaves fewer than n CPUs.
func (p *Policy) preferences(v placement.View, s placement.Subject, n int) []choose.Preference {
	var out []choose.Preference
	prefer := func(name string, cpus topology.Set, avoid bool) {
		if !cpus.Empty() {
			out = append(out, choose.Preference{Name: name, CPUs: cpus, Avoid: avoid})
		}
	}
	partly := func(name string, cpus topology.Set) {
		if !cpus.Empty() {
			out = append(out, choose.Preference{Name: name, CPUs: cpus, Partly: true})
		}
	}
	in := s.Intent
	var near topology.Set
	for _, id := range in.Nodes.V {
		if node, ok := v.Machine.Node(id); ok {
			near = near.Union(node.CPUs)
		}
	}
	partly("the NUMA nodes that a scheduler chose", near)
	cpus, devices := p.devices(v, s).near()
	partly(devices, cpus)
	others := v.Layout.Demand.OwnedCPUs.Minus(s.OwnedByPod)
	if in.Cores.V.AvoidOwnedNodes {
		prefer("NUMA nodes where other pods own CPUs", v.Machine.ExpandToGroups(topology.NodeLevel, others), true)
	}
	if in.Cores.V.AvoidOwnedCores {
		prefer("cores where other pods own CPUs", v.Machine.ExpandToGroups(topology.CoreLevel, others), true)
	}
	prefer("isolated CPUs", v.Machine.IsolatedCPUs(), p.avoidsIsolated(in, n))
	if kind := p.coreKind(in); kind != topology.PlainCore {
		prefer(kind.String()+" cores", v.Machine.CPUsOfKind(kind), false)
	}
	return out
}

// sharedOnly returns the CPUs of shared pools that no reclaimed container uses. The allocator gives these CPUs to an
// owner only after all others, because a shared pool that loses a CPU must get another one.
func (p *Policy) sharedOnly(l *placement.Layout) (cpus topology.Set) {
	if p.Sizing == nil || p.Sizing.Expand { // shared pools use all CPUs without an owner
		return cpus
	}
	for _, s := range l.Shared {
		cpus = cpus.Union(s)
	}
	return cpus.Minus(l.Reclaimed)
}

// nodeNeeds returns, for each NUMA node, how many CPUs of the node must remain for the pools that are bound to it. Such
// a pool cannot use the CPUs of other nodes.
func (p *Policy) nodeNeeds(v placement.View) (out []choose.NodeReserve) {
	if p.Sizing == nil {
		return nil
	}
	for _, n := range v.Machine.Nodes {
		need := 0
		for w, milli := range v.Layout.Demand.Needs.All() {
			switch {
			case !w.IsBoundTo(n.ID) || isSmallPool(w, milli):
			case w.ExclusiveNode:
				need += n.CPUs.Len()
			default:
				of := int64(len(w.NodeIDs())) * milliOfCPU // a pool on several nodes needs an equal part on each
				need += max(1, int((milli+of-1)/of))
			}
		}
		if need > 0 {
			free := v.Pools.Shared.And(n.CPUs).Minus(v.Layout.Demand.OwnedCPUs).And(p.Sizing.usableCPUs())
			out = append(out, choose.NodeReserve{Node: n.ID, CPUs: free, N: min(need, free.Len())})
		}
	}
	return out
}

// avoidsIsolated reports whether an owner of n CPUs prefers CPUs that are not isolated.
func (p *Policy) avoidsIsolated(in *intent.Pod, n int) bool {
	switch how := p.Isolated; {
	case in.PrefersIsolatedCPUs.IsSet():
		return !in.PrefersIsolatedCPUs.V
	case how == IsolatedSingle:
		return n > 1
	default:
		return how == IsolatedAvoided
	}
}

// coreKind returns the kind of cores that a pod prefers.
func (p *Policy) coreKind(in *intent.Pod) topology.CoreKind {
	if in.CoreKind.IsSet() {
		return in.CoreKind.V
	}
	return p.CoreKind
}

// deviceList has the names of devices, and the CPUs near these devices. It has only devices for which such CPUs are
// known.
type deviceList struct {
	machine *topology.Machine
	cpus    topology.Set
	names   []string
}

// devices returns the list of the devices near which the container or pod s should get CPUs. It has the devices in
// s.Devices, and the PCI functions of RDMA network cards that a scheduler allocated to the pod. It lacks devices for
// which no nearest CPUs are known. The list affects only the choice of CPUs, and not whether a container gets the
// devices.
func (p *Policy) devices(v placement.View, s placement.Subject) *deviceList {
	l := &deviceList{machine: v.Machine}
	if !p.NearDevices || len(v.Machine.Nodes) < 2 {
		return l
	}
	for _, d := range placement.LocatedDevices(v.Machine, s.Devices) {
		l.add(d.Name, d.NearCPUs)
	}
	for _, address := range s.Intent.RDMA.V {
		l.addFunction(address)
	}
	slices.Sort(l.names)
	l.names = slices.Compact(l.names)
	return l
}

// addFunction adds the PCI function at an address, if address is a PCI address.
func (l *deviceList) addFunction(address string) {
	if !intent.IsPCIAddress(address) {
		return
	}
	if dev, ok := l.machine.DeviceAt(address); ok {
		l.add(address, l.machine.CPUsNear(dev))
	}
}

// add adds a device, if CPUs near the device are known.
func (l *deviceList) add(name string, near topology.Set) {
	if near.Empty() {
		return
	}
	l.cpus, l.names = l.cpus.Union(near), append(l.names, intent.Printable(name))
}

// maxNamedDevices is the largest number of devices that a reason lists by name.
const maxNamedDevices = 3

// near returns the CPUs near the devices, and the names of the devices for users.
func (l *deviceList) near() (topology.Set, string) {
	names := strings.Join(l.names[:min(maxNamedDevices, len(l.names))], ", ")
	if more := len(l.names) - maxNamedDevices; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return l.cpus, "its devices (" + names + ")"
}
