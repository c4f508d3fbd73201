package balloons

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// balanced is the way in which a composite balloon gets one component: that of the type with the
// fewest balloons.
const balanced = "balance-balloons"

// part is a part of a balloon: the whole, or one component of a composite.
type part struct {
	name string // the balloon's, with the number of the component
	t    *TypeOptions
	size int
	cpus topology.Set
}

// leavesOf lists the types without components that a type consists of: itself, or those of its
// components.
func leavesOf(types []TypeOptions, t *TypeOptions) (all []*TypeOptions) {
	if len(t.Components) == 0 {
		return []*TypeOptions{t}
	}
	for _, c := range t.Components {
		if i := slices.IndexFunc(types, func(o TypeOptions) bool { return o.Name == c.BalloonType }); i >= 0 {
			all = append(all, leavesOf(types, &types[i])...)
		}
	}
	return all
}

// divide gives each part of a composite its share of the CPUs that the containers request.
func divide(t *TypeOptions, leaves []*TypeOptions, milli int64, used bool) (sizes []int) {
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

// leaves lists the types of a balloon's parts. A balanced one has one component.
func (p *Policy) leaves(t *TypeOptions) []*TypeOptions {
	all := p.parts[t.Name]
	if t.ComponentCreation == balanced && len(all) > 1 {
		return all[:1]
	}
	return all
}

// sizeOf returns how many CPUs a balloon has whose containers request an amount.
func (p *Policy) sizeOf(t *TypeOptions, milli int64, used bool) (n int) {
	if len(t.Components) == 0 {
		return t.size(milli, used)
	}
	for _, size := range divide(t, p.leaves(t), milli, used) {
		n += size
	}
	return n
}

// mostOf returns how many CPUs a balloon may have.
func (p *Policy) mostOf(t *TypeOptions) (n int) {
	if len(t.Components) == 0 {
		return t.most()
	}
	for _, leaf := range p.leaves(t) {
		n = min(n+leaf.most(), maxCPUs)
	}
	return min(n, t.most())
}

// partsOf makes the parts of a balloon. counts are the balloons of each type so far, of which a
// balanced composite takes the type with the fewest, unless it has one already.
func (p *Policy) partsOf(w placement.Which, t *TypeOptions, needs placement.Needs, had placement.Balloons, counts map[string]int) (parts []part) {
	need, used := needs.Of(w)
	milli := need.Milli
	if len(t.Components) == 0 {
		counts[t.Name]++
		return []part{{name: w.Name, t: t, size: t.size(milli, used)}}
	}
	leaves, first := p.parts[t.Name], 0
	if t.ComponentCreation == balanced {
		first = p.fewest(w, leaves, had, counts)
		leaves = leaves[first : first+1]
	}
	for i, size := range divide(t, leaves, milli, used) {
		counts[leaves[i].Name]++
		parts = append(parts, part{name: partName(w.Name, first+i), t: leaves[i], size: size})
	}
	return parts
}

// chooses reports whether a balloon is a balanced composite that has no component yet.
func (p *Policy) chooses(w placement.Which, t *TypeOptions, had placement.Balloons) bool {
	if t.ComponentCreation != balanced || len(t.Components) == 0 {
		return false
	}
	b := had.Of(w.Name)
	for i := range p.parts[t.Name] {
		if _, has := b.Part(partName(w.Name, i)); has {
			return false
		}
	}
	return true
}

// fewest returns the component of a balanced composite: the one it has, or else that of the type
// with the fewest balloons, the first of several.
func (p *Policy) fewest(w placement.Which, leaves []*TypeOptions, had placement.Balloons, counts map[string]int) (best int) {
	b := had.Of(w.Name)
	for i := range leaves {
		if _, has := b.Part(partName(w.Name, i)); has {
			return i
		}
		if counts[leaves[i].Name] < counts[leaves[best].Name] {
			best = i
		}
	}
	return best
}

// partName names a component of a composite. It is no name of a balloon.
func partName(balloon string, component int) string { return balloon + "/" + strconv.Itoa(component) }

// component returns the number in the name of a component.
func component(part string) (n int, ok bool) {
	_, number, _ := strings.Cut(part, "/")
	n, err := strconv.Atoi(number)
	return n, err == nil
}

// checkComponents returns what is wrong with composites: types that do not exist, that contain
// themselves, or that have keys that only their components may have.
func checkComponents(types []TypeOptions) (wrong []Wrong) {
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
				wrong = append(wrong, Wrong{where, "is " + quote(c.BalloonType) + ", which is not a type"})
			case circle(o, []string{t.Name}):
				wrong = append(wrong, Wrong{where, "is " + quote(c.BalloonType) + ", which contains itself"})
			case len(o.Components) > 0 && o.ComponentCreation == balanced:
				wrong = append(wrong, Wrong{where, "is " + quote(c.BalloonType) + ", whose components are balanced: such a type cannot be a component"})
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
				wrong = append(wrong, Wrong{at + k.key, "is not allowed in a type with components: set it in the types of the components"})
			}
		}
	}
	return wrong
}

// CheckOn returns what is wrong with options on a machine: a type that no balloon can have enough
// CPUs for, balloons that exist in any case and together want more CPUs than there are, and devices
// that it does not have. cpus are those that balloons may have.
func CheckOn(m *topology.Machine, cpus topology.Set, o PolicyOptions) (wrong []Wrong) {
	p, sum := New(m, nil, o), 0
	for i := range o.BalloonTypes {
		t, at := p.named(o.BalloonTypes[i].Name), fmt.Sprintf("balloonTypes[%d].", i)
		least := p.sizeOf(t, 0, false)
		sum += t.MinBalloons * least
		if least > cpus.Len() {
			wrong = append(wrong, Wrong{at + "minCPUs", fmt.Sprintf("a balloon of type %s has at least %d CPUs, and balloons can have %d", quote(t.Name), least, cpus.Len())})
		}
		for n, device := range t.PreferCloseToDevices {
			if _, ok := closeTo(m, device); !ok {
				wrong = append(wrong, Wrong{fmt.Sprintf("%spreferCloseToDevices[%d]", at, n), "is " + quote(device) + ": this node has no such NUMA node, cache, CPU or PCI device below /sys/devices"})
			}
		}
	}
	if sum > cpus.Len() && len(wrong) == 0 {
		wrong = append(wrong, Wrong{"balloonTypes", fmt.Sprintf("minBalloons of all types have at least %d CPUs, and balloons can have %d", sum, cpus.Len())})
	}
	return wrong
}
