package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// preferences returns the preferences for n CPUs, the most important first. A preference is
// skipped if it would leave too few CPUs.
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
	others := v.Layout.Demand.Owned.Minus(s.Owned)
	if in.Cores.V.NodeApart {
		prefer("NUMA nodes where others own CPUs", v.Machine.Spread(topology.NodeLevel, others), true)
	}
	if in.Cores.V.CoreApart {
		prefer("cores where others own CPUs", v.Machine.Spread(topology.CoreLevel, others), true)
	}
	prefer("isolated CPUs", v.Machine.Isolated(), p.avoidsIsolated(in, n))
	if kind := p.coreKind(in); kind != topology.PlainCore {
		prefer(kind.String()+" cores", v.Machine.Of(kind), false)
	}
	return out
}

// shared returns the CPUs that only shared pools use, not reclaimed containers. An owner takes
// these CPUs last. The pool can get other CPUs instead.
func (p *Policy) shared(l *placement.Layout) (cpus topology.Set) {
	if p.Sizing == nil || p.Sizing.Expand { // a pool of all remaining CPUs
		return cpus
	}
	for _, s := range l.Shared {
		cpus = cpus.Union(s)
	}
	return cpus.Minus(l.Reclaimed)
}

// needed returns the needs of pools that are bound to a NUMA node. Such pools cannot use other
// nodes.
func (p *Policy) needed(v placement.View) (out []choose.Left) {
	if p.Sizing == nil {
		return nil
	}
	for _, n := range v.Machine.Nodes {
		need := 0
		for w, milli := range v.Layout.Demand.Needs.All() {
			switch {
			case !w.IsOn(n.ID) || isGuest(w, milli):
			case w.ExclusiveNode:
				need += n.CPUs.Len()
			default:
				of := int64(len(w.On())) * milliOfCPU // a pool on several nodes has a part on each
				need += max(1, int((milli+of-1)/of))
			}
		}
		if need > 0 {
			free := v.Pools.Shared.And(n.CPUs).Minus(v.Layout.Demand.Owned).And(p.Sizing.usable())
			out = append(out, choose.Left{Node: n.ID, CPUs: free, N: min(need, free.Len())})
		}
	}
	return out
}

// avoidsIsolated reports whether an owner of n CPUs prefers CPUs that are not isolated.
func (p *Policy) avoidsIsolated(in *intent.Pod, n int) bool {
	switch how := p.Isolated; {
	case in.Isolated.IsSet():
		return !in.Isolated.V
	case how == IsolatedSingle:
		return n > 1
	default:
		return how == IsolatedAvoided
	}
}

func (p *Policy) coreKind(in *intent.Pod) topology.CoreKind {
	if in.CoreKind.IsSet() {
		return in.CoreKind.V
	}
	return p.CoreKind
}

// deviceList collects devices with a known place: the CPUs near them, and their names.
type deviceList struct {
	machine *topology.Machine
	cpus    topology.Set
	names   []string
}

// devices returns the devices of a subject with a known place: its granted devices, and the
// functions of cards that a scheduler allocated. It does not decide whether a container gets the
// devices; CPUs near a device give no access to it.
func (p *Policy) devices(v placement.View, s placement.Subject) *deviceList {
	l := &deviceList{machine: v.Machine}
	if !p.NearDevices || len(v.Machine.Nodes) < 2 {
		return l
	}
	for _, g := range s.Devices {
		l.granted(g)
	}
	for _, address := range s.Intent.RDMA.V {
		l.function(address)
	}
	slices.Sort(l.names)
	l.names = slices.Compact(l.names)
	return l
}

// granted adds the devices of a grant: by their reported NUMA nodes, by PCI address, and by the
// number of a device node.
func (l *deviceList) granted(g lifecycle.DeviceGrant) {
	for resource, nodes := range g.NUMA {
		for _, id := range nodes {
			if n, ok := l.machine.Node(id); ok {
				l.add(resource, n.CPUs)
			}
		}
	}
	for _, ids := range g.IDs {
		for _, id := range ids {
			l.function(id)
		}
	}
	for _, name := range g.CDI {
		_, device, _ := strings.Cut(name, "=")
		l.function(device)
	}
	for _, node := range g.Nodes {
		if dev, ok := l.machine.DeviceOf(fmt.Sprintf("%d:%d", node.Major, node.Minor)); ok && node.Type == "c" {
			l.add(dev.Address, l.machine.Near(dev))
		}
	}
}

// function adds the function of a card at a PCI address, if address is one.
func (l *deviceList) function(address string) {
	if !intent.IsPCIAddress(address) {
		return
	}
	if dev, ok := l.machine.DeviceAt(address); ok {
		l.add(address, l.machine.Near(dev))
	}
}

func (l *deviceList) add(name string, near topology.Set) {
	if near.Empty() {
		return
	}
	l.cpus, l.names = l.cpus.Union(near), append(l.names, intent.Printable(name))
}

// mostNamed is the largest number of devices that a reason names.
const mostNamed = 3

// near returns the CPUs near the devices, and the devices' names.
func (l *deviceList) near() (topology.Set, string) {
	names := strings.Join(l.names[:min(mostNamed, len(l.names))], ", ")
	if more := len(l.names) - mostNamed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return l.cpus, "its devices (" + names + ")"
}
