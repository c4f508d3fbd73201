package placement

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// BalloonCPUs are a balloon of a layout. A value is never changed, only replaced: layouts share
// the balloons that are equal in both.
type BalloonCPUs struct {
	Need  Need // with its name
	Index int  // among those of its type
	// Size is how many CPUs it should have; it has fewer if there are too few.
	Size int
	// Own are the CPUs that no other balloon has.
	Own topology.Set
	// Shares are the CPUs that its containers may use, too, while they are idle.
	Shares topology.Set
	// All are the CPUs that its containers may run on, and Near those that their memory is near.
	All, Near topology.Set
	// HidesThreads: its containers run on one thread of each core.
	HidesThreads bool
	// Parts are its components, if it is a composite.
	Parts []BalloonPart
}

// BalloonPart is a component of a composite balloon.
type BalloonPart struct {
	Name string // the balloon's, with the number of the component
	CPUs topology.Set
}

// Balloons are balloons, sorted by type and index. A list is never changed.
type Balloons []*BalloonCPUs

// compareNames orders names of balloons by type, then by index.
func compareNames(a, b string) int {
	i, j := strings.IndexByte(a, '['), strings.IndexByte(b, '[')
	if i < 0 || j < 0 {
		return strings.Compare(a, b)
	}
	return cmp.Or(strings.Compare(a[:i], b[:j]), len(a)-len(b), strings.Compare(a, b))
}

// HeldBy returns balloons of which only the CPUs are known, by name. The name of a component is
// that of its balloon, a slash, and its number.
func HeldBy(cpus map[string]topology.Set) Balloons {
	all := Balloons{}
	for name, own := range cpus {
		if !strings.Contains(name, "/") {
			all = append(all, &BalloonCPUs{Need: Need{Which: Which{Name: name}}, Own: own})
		}
	}
	slices.SortFunc(all, func(a, b *BalloonCPUs) int { return compareNames(a.Need.Which.Name, b.Need.Which.Name) })
	for name, own := range cpus {
		if of, _, is := strings.Cut(name, "/"); is {
			b := all.Of(of)
			if b == nil { // its other components are not known
				b = &BalloonCPUs{Need: Need{Which: Which{Name: of}}}
				at, _ := all.find(of)
				all = slices.Insert(all, at, b)
			}
			b.Parts = append(b.Parts, BalloonPart{name, own})
		}
	}
	return all
}

func (b Balloons) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(b, name, func(a *BalloonCPUs, name string) int { return compareNames(a.Need.Which.Name, name) })
}

// Of returns a balloon by name; nil if there is none.
func (b Balloons) Of(name string) *BalloonCPUs {
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
	for end < len(b) && strings.HasPrefix(b[end].Need.Which.Name, prefix) {
		end++
	}
	return b[at:end]
}

// Part returns the CPUs of a component by its name.
func (b *BalloonCPUs) Part(name string) (cpus topology.Set, known bool) {
	if b != nil {
		for i := range b.Parts {
			if b.Parts[i].Name == name {
				return b.Parts[i].CPUs, true
			}
		}
	}
	return cpus, false
}

// Since lists the names of the balloons that are not those of an older list, sorted.
func (b Balloons) Since(old Balloons) (changed []string) {
	for len(b) > 0 || len(old) > 0 {
		switch {
		case len(b) > 0 && len(old) > 0 && b[0] == old[0]:
			b, old = b[1:], old[1:]
		case len(old) == 0 || len(b) > 0 && compareNames(b[0].Need.Which.Name, old[0].Need.Which.Name) < 0:
			changed, b = append(changed, b[0].Need.Which.Name), b[1:]
		case len(b) == 0 || compareNames(b[0].Need.Which.Name, old[0].Need.Which.Name) > 0:
			changed, old = append(changed, old[0].Need.Which.Name), old[1:]
		default:
			changed, b, old = append(changed, b[0].Need.Which.Name), b[1:], old[1:]
		}
	}
	return changed
}

// Replaced returns the balloons with some more or other ones, and without those of some names.
func (b Balloons) Replaced(by Balloons, gone []string) Balloons {
	if len(by) == 0 && len(gone) == 0 {
		return b
	}
	out := make(Balloons, len(b), len(b)+len(by))
	copy(out, b)
	for _, name := range gone {
		if at, found := out.find(name); found {
			out = slices.Delete(out, at, at+1)
		}
	}
	for _, next := range by {
		at, found := out.find(next.Need.Which.Name)
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
	return b.Need == o.Need && b.Index == o.Index && b.Size == o.Size && b.Own == o.Own && b.Shares == o.Shares && b.All == o.All && b.Near == o.Near &&
		b.HidesThreads == o.HidesThreads && slices.Equal(b.Parts, o.Parts)
}
