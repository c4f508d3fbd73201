package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// BalloonCPUs is one balloon of a layout, with the balloon's CPUs. A balloon is a pool of the placement policy
// "balloons": its containers share its CPUs. Several layouts can point to the same BalloonCPUs. So code never changes a
// BalloonCPUs, but makes a new one.
type BalloonCPUs struct {
	Need  Need // what the balloon's containers request; Need.PoolID.Name is the balloon's name
	Index int  // the balloon's number among the balloons of its type, from 0
	// Size is how many CPUs the balloon should have. If too few CPUs are free for it, the balloon has fewer CPUs.
	Size int
	// OwnCPUs are the CPUs that only this balloon has.
	OwnCPUs topology.Set
	// SharedIdleCPUs are CPUs near the balloon's own CPUs. While no balloon has a CPU of this set, the balloon's
	// containers also use this CPU.
	SharedIdleCPUs topology.Set
	// AllowedCPUs are the CPUs on which the balloon's containers may run. MemoryCPUs are the CPUs near which the memory
	// of these containers should be.
	AllowedCPUs, MemoryCPUs topology.Set
	// HidesThreads means that the balloon's containers run on one thread of each core.
	HidesThreads bool
	// Components are the components of a composite balloon, which consists of one balloon of each of several types. It
	// is nil for other balloons.
	Components []BalloonComponent
}

// BalloonComponent is a component of a composite balloon.
type BalloonComponent struct {
	Name string // the balloon's name, a slash and the number of the component
	CPUs topology.Set
}

// Balloons is a list of balloons, sorted by type and index. Code never changes a list, but makes a new one.
type Balloons []*BalloonCPUs

// compareNames orders names of balloons by type, then by index.
func compareNames(a, b string) int {
	i, j := strings.IndexByte(a, '['), strings.IndexByte(b, '[')
	if i < 0 || j < 0 {
		return strings.Compare(a, b)
	}
	return cmp.Or(strings.Compare(a[:i], b[:j]), len(a)-len(b), strings.Compare(a, b))
}

// BalloonsFromCPUs returns balloons with the given CPUs and no other properties. The keys of the parameter cpus are
// names of balloons, and of components of composite balloons.
func BalloonsFromCPUs(cpus map[string]topology.Set) Balloons {
	all := Balloons{}
	for name, own := range cpus {
		if !strings.Contains(name, "/") {
			all = append(all, &BalloonCPUs{Need: Need{PoolID: PoolID{Name: name}}, OwnCPUs: own})
		}
	}
	slices.SortFunc(all, func(a, b *BalloonCPUs) int { return compareNames(a.Need.PoolID.Name, b.Need.PoolID.Name) })
	for name, own := range cpus {
		if balloonName, _, is := strings.Cut(name, "/"); is {
			b := all.ByName(balloonName)
			if b == nil { // cpus has no entry for the composite balloon itself
				b = &BalloonCPUs{Need: Need{PoolID: PoolID{Name: balloonName}}}
				at, _ := all.find(balloonName)
				all = slices.Insert(all, at, b)
			}
			b.Components = append(b.Components, BalloonComponent{name, own})
		}
	}
	return all
}

// find returns the index of a balloon by name. If found is false, the result at is the index at which to insert the
// balloon.
func (b Balloons) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(b, name, func(a *BalloonCPUs, name string) int { return compareNames(a.Need.PoolID.Name, name) })
}

// ByName returns a balloon by name; nil if there is none.
func (b Balloons) ByName(name string) *BalloonCPUs {
	if at, found := b.find(name); found {
		return b[at]
	}
	return nil
}

// OfType returns the balloons of a type.
func (b Balloons) OfType(name string) Balloons {
	prefix := name + "["
	at, _ := b.find(prefix)
	end := at
	for end < len(b) && strings.HasPrefix(b[end].Need.PoolID.Name, prefix) {
		end++
	}
	return b[at:end]
}

// ComponentCPUs returns the CPUs of a component by the component's name. The result known is false if the balloon has
// no such component.
func (b *BalloonCPUs) ComponentCPUs(name string) (cpus topology.Set, known bool) {
	if b != nil {
		for i := range b.Components {
			if b.Components[i].Name == name {
				return b.Components[i].CPUs, true
			}
		}
	}
	return cpus, false
}

// ChangedSince returns the sorted names of the balloons that differ from an older list, or that only one of
// the lists has.
func (b Balloons) ChangedSince(old Balloons) (changed []string) {
	for len(b) > 0 || len(old) > 0 {
		switch {
		case len(b) > 0 && len(old) > 0 && b[0] == old[0]:
			b, old = b[1:], old[1:]
		case len(old) == 0 || len(b) > 0 && compareNames(b[0].Need.PoolID.Name, old[0].Need.PoolID.Name) < 0:
			changed, b = append(changed, b[0].Need.PoolID.Name), b[1:]
		case len(b) == 0 || compareNames(b[0].Need.PoolID.Name, old[0].Need.PoolID.Name) > 0:
			changed, old = append(changed, old[0].Need.PoolID.Name), old[1:]
		default:
			changed, b, old = append(changed, b[0].Need.PoolID.Name), b[1:], old[1:]
		}
	}
	return changed
}

// WithChanges returns a new list. It adds or replaces the balloons in the list changed. It leaves out the balloons
// whose names are in the list removed.
func (b Balloons) WithChanges(changed Balloons, removed []string) Balloons {
	if len(changed) == 0 && len(removed) == 0 {
		return b
	}
	out := make(Balloons, len(b), len(b)+len(changed))
	copy(out, b)
	for _, name := range removed {
		if at, found := out.find(name); found {
			out = slices.Delete(out, at, at+1)
		}
	}
	for _, next := range changed {
		at, found := out.find(next.Need.PoolID.Name)
		switch {
		case !found:
			out = slices.Insert(out, at, next)
		case !out[at].equals(next):
			out[at] = next
		}
	}
	return out
}

func (b *BalloonCPUs) equals(o *BalloonCPUs) bool {
	return b.Need.equals(&o.Need) && b.Index == o.Index && b.Size == o.Size && b.OwnCPUs == o.OwnCPUs && b.SharedIdleCPUs == o.SharedIdleCPUs && b.AllowedCPUs == o.AllowedCPUs && b.MemoryCPUs == o.MemoryCPUs &&
		b.HidesThreads == o.HidesThreads && slices.Equal(b.Components, o.Components)
}
