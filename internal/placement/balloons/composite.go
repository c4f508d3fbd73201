package balloons

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

// balancedComponents is a value of the key componentCreation of a composite type, a balloon type that consists of
// component types. With this value, a balloon has only one component: of the component type that has the fewest
// balloons. Such a composite balloon is called balanced.
const balancedComponents = "balance-balloons"

// balloonPart is a part of a balloon that gets CPUs: the whole balloon, or one component of a composite balloon.
type balloonPart struct {
	name        string // the name of the balloon; for a component, the name that partName makes, such as type[0]/1
	balloonType *TypeOptions
	size        int          // the number of CPUs that the part should have
	cpus        topology.Set // the CPUs that the part has so far
	// devices are the CPU requests of those containers of the balloon that use devices. Each entry also has the CPUs
	// near the devices. The entries for devices that the type prefers most come first.
	devices []placement.DeviceNeed
}

// leafTypesOf returns the simple types, which have no components, of which type t consists. If t has no components, it
// returns t. Otherwise it returns the simple types of all components of t.
func leafTypesOf(types []TypeOptions, t *TypeOptions) (all []*TypeOptions) {
	if len(t.Components) == 0 {
		return []*TypeOptions{t}
	}
	for _, c := range t.Components {
		if i := slices.IndexFunc(types, func(o TypeOptions) bool { return o.Name == c.BalloonType }); i >= 0 {
			all = append(all, leafTypesOf(types, &types[i])...)
		}
	}
	return all
}

// componentSizes returns the number of CPUs of each component of a composite balloon. The parameter milli is the sum of
// the CPU requests of the balloon's containers, in milli-CPUs. If used is true, the balloon has containers.
func componentSizes(t *TypeOptions, leaves []*TypeOptions, milli int64, used bool) (sizes []int) {
	n := len(leaves)
	share := (milli + int64(n) - 1) / int64(n)
	for _, leaf := range leaves {
		size := max(leaf.size(share, used), (t.MinCPUs+n-1)/n)
		if t.MaxCPUs > 0 {
			size = min(size, max(1, t.MaxCPUs/n))
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// leafTypes returns the simple types, which have no components, of which a balloon of type t consists. For a balanced
// composite it returns only the first of these types, because such a balloon has one component.
func (p *Policy) leafTypes(t *TypeOptions) []*TypeOptions {
	all := p.partTypes[t.Name]
	if t.ComponentCreation == balancedComponents && len(all) > 1 {
		return all[:1]
	}
	return all
}

// sizeOf returns how many CPUs a balloon of type t has. The parameter milli is the sum of the CPU requests of the
// balloon's containers, in milli-CPUs. If used is true, the balloon has containers.
func (p *Policy) sizeOf(t *TypeOptions, milli int64, used bool) (n int) {
	if len(t.Components) == 0 {
		return t.size(milli, used)
	}
	for _, size := range componentSizes(t, p.leafTypes(t), milli, used) {
		n += size
	}
	return n
}

// maxCPUsOf returns how many CPUs a balloon of a type may have at most.
func (p *Policy) maxCPUsOf(t *TypeOptions) (n int) {
	if len(t.Components) == 0 {
		return t.maxCPUs()
	}
	for _, leaf := range p.leafTypes(t) {
		n = min(n+leaf.maxCPUs(), maxCPUs)
	}
	return min(n, t.maxCPUs())
}

// partsOf makes the parts of a balloon. A balanced composite that has no component yet gets a component of the type
// with the fewest balloons. The map counts has the number of balloons and components by type; partsOf adds the new
// parts.
func (p *Policy) partsOf(w placement.PoolID, t *TypeOptions, needs placement.Needs, had placement.Balloons, counts map[string]int) (parts []balloonPart) {
	need, used := needs.OfPool(w)
	milli := need.MilliCPUs
	if len(t.Components) == 0 {
		counts[t.Name]++
		return []balloonPart{{name: w.Name, balloonType: t, size: t.size(milli, used), devices: devicesOf(t, &need, 1)}}
	}
	leaves, first := p.partTypes[t.Name], 0
	if t.ComponentCreation == balancedComponents {
		first = p.leastUsedComponent(w, leaves, had, counts)
		leaves = leaves[first : first+1]
	}
	for i, size := range componentSizes(t, leaves, milli, used) {
		counts[leaves[i].Name]++
		parts = append(parts, balloonPart{name: partName(w.Name, first+i), balloonType: leaves[i], size: size, devices: devicesOf(leaves[i], &need, len(leaves))})
	}
	return parts
}

// choosesComponent reports whether a balloon is a balanced composite that must still choose its component.
func (p *Policy) choosesComponent(w placement.PoolID, t *TypeOptions, had placement.Balloons) bool {
	if t.ComponentCreation != balancedComponents || len(t.Components) == 0 {
		return false
	}
	b := had.ByName(w.Name)
	for i := range p.partTypes[t.Name] {
		if _, has := b.ComponentCPUs(partName(w.Name, i)); has {
			return false
		}
	}
	return true
}

// leastUsedComponent returns the index of the component that a balanced composite balloon has. If the balloon has no
// component yet, leastUsedComponent returns the index of the component type that has the fewest balloons.
func (p *Policy) leastUsedComponent(w placement.PoolID, leaves []*TypeOptions, had placement.Balloons, counts map[string]int) (best int) {
	b := had.ByName(w.Name)
	for i := range leaves {
		if _, has := b.ComponentCPUs(partName(w.Name, i)); has {
			return i
		}
		if counts[leaves[i].Name] < counts[leaves[best].Name] {
			best = i
		}
	}
	return best
}

// partName returns the name of a component of a composite balloon, such as type[0]/1. No balloon has such a name.
func partName(balloon string, component int) string { return balloon + "/" + strconv.Itoa(component) }

// componentIndex returns the index in the name of a component.
func componentIndex(part string) (n int, ok bool) {
	_, number, _ := strings.Cut(part, "/")
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// checkComponents returns the problems of composite types. A component's type must exist, must not contain itself, and
// must not be a balanced composite. A composite type must not set keys that only types without components may set.
func checkComponents(types []TypeOptions) (wrong []class.Problem) {
	named := func(name string) *TypeOptions {
		if i := slices.IndexFunc(types, func(t TypeOptions) bool { return t.Name == name }); i >= 0 {
			return &types[i]
		}
		return nil
	}
	var circle func(t *TypeOptions, above []string) bool
	circle = func(t *TypeOptions, above []string) bool {
		return t != nil && (slices.Contains(above, t.Name) || slices.ContainsFunc(t.Components, func(c ComponentOptions) bool {
			return circle(named(c.BalloonType), append(slices.Clone(above), t.Name))
		}))
	}
	for i := range types {
		t, at := &types[i], fmt.Sprintf("balloonTypes[%d].", i)
		for n, c := range t.Components {
			where := fmt.Sprintf("%scomponents[%d].balloonType", at, n)
			switch o := named(c.BalloonType); {
			case o == nil:
				wrong = append(wrong, class.Problem{Path: where, Text: "is " + class.Quote(c.BalloonType) + ", which is not a type"})
			case circle(o, []string{t.Name}):
				wrong = append(wrong, class.Problem{Path: where, Text: "is " + class.Quote(c.BalloonType) + ", which contains itself"})
			case len(o.Components) > 0 && o.ComponentCreation == balancedComponents:
				wrong = append(wrong, class.Problem{Path: where, Text: "is " + class.Quote(c.BalloonType) + ", whose components are balanced: such a type cannot be a component"})
			}
		}
		if len(t.Components) == 0 {
			continue
		}
		for _, k := range []struct {
			key string
			set bool
		}{
			{"preferSpreadOnPhysicalCores", t.PreferSpreadOnPhysicalCores},
			{"allocatorTopologyBalancing", t.AllocatorTopologyBalancing},
			{"preferCloseToDevices", len(t.PreferCloseToDevices) > 0},
			{"preferIsolCpus", t.PreferIsolCPUs},
			{"preferCoreType", t.PreferCoreType != ""},
		} {
			if k.set {
				wrong = append(wrong, class.Problem{Path: at + k.key, Text: "is not allowed in a type with components: set it in the types of the components"})
			}
		}
	}
	return wrong
}

// CheckOnMachine returns the problems of options on one machine: minimum sizes that exceed the
// CPUs for balloons, and devices that the machine does not have. cpus are the CPUs that balloons may have.
func CheckOnMachine(m *topology.Machine, cpus topology.Set, o PolicyOptions) (wrong []class.Problem) {
	p, sum := New(m, nil, o), 0
	for i := range o.BalloonTypes {
		t, at := p.typeNamed(o.BalloonTypes[i].Name), fmt.Sprintf("balloonTypes[%d].", i)
		least := p.sizeOf(t, 0, false)
		sum += t.MinBalloons * least
		if least > cpus.Len() {
			wrong = append(wrong, class.Problem{Path: at + "minCPUs", Text: fmt.Sprintf("each balloon of type %s needs at least %d CPUs, but this node has only %d CPUs for balloons", class.Quote(t.Name), least, cpus.Len())})
		}
		for n, device := range t.PreferCloseToDevices {
			if _, granted := resourcePattern(device); granted {
				continue
			}
			if _, ok := cpusNearDevice(m, device); !ok {
				wrong = append(wrong, class.Problem{Path: fmt.Sprintf("%spreferCloseToDevices[%d]", at, n), Text: "is " + class.Quote(device) + ": this node has no such NUMA node, cache, CPU or PCI device below /sys/devices"})
			}
		}
	}
	if sum > cpus.Len() && len(wrong) == 0 {
		wrong = append(wrong, class.Problem{Path: "balloonTypes", Text: fmt.Sprintf("the balloons that minBalloons requires need at least %d CPUs together, but this node has only %d CPUs for balloons: lower minBalloons or minCPUs", sum, cpus.Len())})
	}
	return wrong
}
