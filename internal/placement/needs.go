package placement

import (
	"cmp"
	"iter"
	"slices"

	"github.com/trimtab/trimtab/internal/topology"
)

// Need is the sum of the requests of a pool's containers.
type Need struct {
	PoolID    PoolID
	MilliCPUs int64 // the requested CPU time
	Members   int   // the number of containers
	// Devices are the requests of those containers for whose devices the pool should have near CPUs. There is one entry
	// for each pattern of preferCloseToDevices and set of near CPUs, sorted. Devices is nil if there are no such
	// containers.
	Devices []DeviceNeed
}

// DeviceCPUs are the CPUs near some devices of a container: the devices that match one pattern of the configuration key
// preferCloseToDevices.
type DeviceCPUs struct {
	Pattern string `json:"Wish"`
	CPUs    topology.Set
}

func (d DeviceCPUs) compare(o DeviceCPUs) int {
	return cmp.Or(cmp.Compare(d.Pattern, o.Pattern), slices.Compare(d.CPUs[:], o.CPUs[:]))
}

// DeviceNeed is the sum of the requests of containers whose devices match the same pattern and are near the same CPUs.
type DeviceNeed struct {
	DeviceCPUs

	MilliCPUs int64 // the requested CPU time
	Members   int   // the number of containers
}

// Size returns the number of CPUs that the containers request, rounded up, and at least one.
func (d *DeviceNeed) Size() int {
	const milliOfCPU = 1000
	return int(min(max((d.MilliCPUs+milliOfCPU-1)/milliOfCPU, 1), topology.MaxCPUs))
}

// withDevices returns a copy of the list all. For each of the given devices, it adds milli to the requested milli-CPUs,
// and members to the number of containers. Negative numbers subtract. If no devices are given, it returns all itself.
func withDevices(all []DeviceNeed, milli int64, members int, devices []DeviceCPUs) []DeviceNeed {
	if len(devices) == 0 {
		return all
	}
	all = slices.Clone(all)
	for _, d := range devices {
		at, found := slices.BinarySearchFunc(all, d, func(a DeviceNeed, d DeviceCPUs) int { return a.compare(d) })
		if !found {
			all = slices.Insert(all, at, DeviceNeed{DeviceCPUs: d})
		}
		all[at].MilliCPUs, all[at].Members = all[at].MilliCPUs+milli, all[at].Members+members
	}
	if all = slices.DeleteFunc(all, func(d DeviceNeed) bool { return d.Members == 0 }); len(all) == 0 {
		return nil // a pool without devices has nil, so that equal needs compare as equal
	}
	return all
}

func (n *Need) equals(o *Need) bool {
	return n.PoolID == o.PoolID && n.MilliCPUs == o.MilliCPUs && n.Members == o.Members && slices.Equal(n.Devices, o.Devices)
}

// Needs are the needs of all pools that have containers, sorted by pool. Code never changes a list, and WithRequests
// makes a new list. So layouts can share the entries, and most comparisons of entries only compare pointers.
type Needs []*Need

// NeedsOf makes needs in which each pool has one container. The parameter milli has the requested milli-CPUs by pool.
func NeedsOf(milli map[PoolID]int64) (n Needs) {
	for w, amount := range milli {
		n = n.WithRequests(w, amount, 1)
	}
	return n
}

// find returns the index of a pool's need. If found is false, the result at is the index at which to insert the need.
func (n Needs) find(w PoolID) (at int, found bool) {
	return slices.BinarySearchFunc(n, w, func(a *Need, w PoolID) int { return a.PoolID.Compare(w) })
}

// OfPool returns the need of a pool. The result used is false if the pool has no containers.
func (n Needs) OfPool(w PoolID) (of Need, used bool) {
	if at, found := n.find(w); found {
		return *n[at], true
	}
	return Need{PoolID: w}, false
}

// WithRequests returns a copy of the needs. In the need of the pool w, it adds milli to the requested milli-CPUs and
// members to the number of containers. Negative numbers subtract. The parameter devices has the devices of these
// containers.
func (n Needs) WithRequests(w PoolID, milli int64, members int, devices ...DeviceCPUs) Needs {
	at, found := n.find(w)
	sum := Need{PoolID: w, MilliCPUs: milli, Members: members}
	if found {
		sum.MilliCPUs, sum.Members, sum.Devices = sum.MilliCPUs+n[at].MilliCPUs, sum.Members+n[at].Members, n[at].Devices
	}
	sum.Devices = withDevices(sum.Devices, milli, members, devices)
	out := make(Needs, 0, len(n)+1)
	out = append(out, n[:at]...)
	if sum.Members != 0 {
		out = append(out, &sum)
	}
	if found {
		at++
	}
	return append(out, n[at:]...)
}

// All iterates over the pools and their milli-CPUs.
func (n Needs) All() iter.Seq2[PoolID, int64] {
	return func(yield func(PoolID, int64) bool) {
		for _, need := range n {
			if !yield(need.PoolID, need.MilliCPUs) {
				return
			}
		}
	}
}

// Equal reports whether two lists have the same needs.
func (n Needs) Equal(o Needs) bool {
	return slices.EqualFunc(n, o, func(a, b *Need) bool { return a == b || a.equals(b) })
}

// ChangedSince lists the pools whose needs differ from those of an older list, sorted.
func (n Needs) ChangedSince(old Needs) (changed []PoolID) {
	for len(n) > 0 || len(old) > 0 {
		switch {
		case len(n) > 0 && len(old) > 0 && n[0] == old[0]:
			n, old = n[1:], old[1:]
		case len(old) == 0 || len(n) > 0 && n[0].PoolID.Compare(old[0].PoolID) < 0:
			changed, n = append(changed, n[0].PoolID), n[1:]
		case len(n) == 0 || n[0].PoolID.Compare(old[0].PoolID) > 0:
			changed, old = append(changed, old[0].PoolID), old[1:]
		default:
			if !n[0].equals(old[0]) {
				changed = append(changed, n[0].PoolID)
			}
			n, old = n[1:], old[1:]
		}
	}
	return changed
}
