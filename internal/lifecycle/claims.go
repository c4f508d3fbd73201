package lifecycle

import "cmp"

// ClaimGrant has the resource claims that give CPUs to one container. It is immutable.
type ClaimGrant struct {
	Claims []Claim
	// Problems are the problems of these claims. If one of them is marked as refused, the claims give
	// the container no CPUs.
	Problems []Problem
}

// Claim is a resource claim whose CDI device is in the runtime's request for a container.
type Claim struct {
	UID string
	// Device is the claim's CDI device.
	Device string
	// Name is the claim's namespace/name; "" if it is unknown.
	Name string
	// CPUs are the sorted kernel ids of the claim's CPUs. The list is empty if the driver allocated shared CPUs.
	CPUs []int
}

// Devices returns the CDI devices of the claims.
func (g *ClaimGrant) Devices() (names []string) {
	if g != nil {
		for _, c := range g.Claims {
			names = append(names, c.Device)
		}
	}
	return names
}

// The kinds of CDI devices whose name selects a class, a pool or a balloon type. Such a CDI device gives a
// container no device node. It takes effect for the pods whose resource claims contain it.
const (
	ClassCDI   = "trimtab.io/class"
	PoolCDI    = "trimtab.io/pool"
	BalloonCDI = "trimtab.io/balloon"
)

// IsClassDevice reports whether the CDI device with a qualified name selects a class, a pool or a balloon
// type.
func IsClassDevice(name string) bool {
	kind := KindOfCDI(name)
	return kind == ClassCDI || kind == PoolCDI || kind == BalloonCDI
}

// ClaimedDevice is a CDI device that selects a class, pool or balloon type. It belongs to a resource claim.
type ClaimedDevice struct {
	Device string
	// Claim is the namespace/name of the resource claim; "" if the agent knows the device only from a container's
	// record.
	Claim string `json:",omitempty"`
}

// Compare orders devices by their names, then by their claims.
func (d ClaimedDevice) Compare(other ClaimedDevice) int {
	return cmp.Or(cmp.Compare(d.Device, other.Device), cmp.Compare(d.Claim, other.Claim))
}
