package balloons

import (
	"cmp"
	"errors"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

const (
	milliOfCPU = 1000
	maxCPUs    = topology.MaxCPUs
)

// Policy is the policy for placement.policy: balloons.
type Policy struct {
	Machine *topology.Machine
	// Pick chooses the CPUs of balloons.
	Pick        Picker
	Options     PolicyOptions
	types       []TypeOptions
	typeIndexes map[string]int // the indexes in types, by name
	threads     placement.Cores
	// isolated are the isolated CPUs of the machine. usesIsolated reports that a type prefers isolated CPUs.
	isolated     topology.Set
	usesIsolated bool
	// parts has the types without components of which balloons consist, by the name of the balloon's type.
	// hints has the hints of each type, by name.
	parts map[string][]*TypeOptions
	hints map[string]hints
	// usesGrantedDevices reports that a type prefers CPUs near devices that the kubelet grants to containers.
	usesGrantedDevices bool
	// classes are the CPU classes of the configuration.
	classes []lifecycle.CPUClass
}

// Picker chooses n CPUs out of from, or all CPUs if from has fewer. It prefers CPUs near those in with.
// Package pick has the implementation.
type Picker interface {
	Pick(n int, from, with topology.Set, p Preference) topology.Set
}

// Preference says which CPUs a balloon prefers.
type Preference struct {
	SpreadCores bool // one thread of each core first
	Emptiest    bool // CPUs of the emptiest part of the node
}

// New returns the policy for a machine. The options must be valid.
func New(m *topology.Machine, pick Picker, o PolicyOptions) *Policy {
	p := &Policy{Machine: m, Pick: pick, Options: o, types: Types(o), typeIndexes: map[string]int{}, threads: placement.CoresOf(m), parts: map[string][]*TypeOptions{}}
	for i := range p.types {
		p.typeIndexes[p.types[i].Name] = i
		p.parts[p.types[i].Name] = leavesOf(p.types, &p.types[i])
	}
	p.usesGrantedDevices = slices.ContainsFunc(p.types, func(t TypeOptions) bool { return len(devicePatterns([]*TypeOptions{&t})) > 0 })
	p.classes = Classes(o)
	p.hints, p.isolated = hintsOf(m, p.types), m.Isolated()
	p.usesIsolated = slices.ContainsFunc(p.types, func(t TypeOptions) bool { return t.PreferIsolCPUs })
	return p
}

// Terms lets containers own only CPUs that a scheduler assigned. The policy chooses memory nodes if pinMemory is on, in
// the policy or in a type.
func (p *Policy) Terms(*topology.Machine, placement.Subject) placement.Terms {
	pins := func(t TypeOptions) bool { return p.pinsMemory(&t) }
	return placement.Terms{
		Chooses: p.Options.PinMemory || slices.ContainsFunc(p.types, pins), NearDevices: p.usesGrantedDevices, PoolsNearDevices: p.usesGrantedDevices,
	}
}

// Choose returns an error, because this policy gives containers no CPUs of their own. Containers that own
// CPUs because of an earlier policy keep them.
func (p *Policy) Choose(_ placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	return placement.Assignment{CPUs: w.UsableCPUs}, errors.New("placement.policy is balloons: containers own only CPUs that a scheduler assigned")
}

// errNoRoom is the reason why a container is in no balloon of its type.
var errNoRoom = errors.New("no balloon of this type has room for the container")

// Share chooses the balloon of a container.
func (p *Policy) Share(v placement.View, s placement.Subject) (a placement.Assignment) {
	if v.PlacementOff || s.Pod == nil {
		a.Why = "placement is off"
		return a
	}
	who := Subject{Pod: s.Pod, QoS: s.Intent.QoS.String(), Name: s.Name}
	if a.From = p.preservedBy(s, who); a.From != "" {
		a.Why, a.Memory.KeepRequested = "the container is kept out of balloons, and keeps the CPUs of its request", true
		return a
	}
	t, from, wrong := p.typeOf(s, who)
	a.From, a.Problems = from, wrong
	f := balloonChoice{p: p, v: v, t: t, s: s, milli: intent.SharesMilli(s.Requested.CPU.Shares.V)}
	if t.GroupBy != "" {
		f.group, _ = who.Expand(t.GroupBy)
	}
	name, why := "", ""
	if had, _, _ := splitName(s.Balloon); had != defaultType || t.Name == defaultType {
		name, why = f.choose()
	} // a container that its type had no room for at its creation stays in the type default, also after a restart
	if name == "" {
		a.Problems = append(a.Problems, lifecycle.Problem{
			Key: "placement.balloons", Value: t.Name, Reason: errNoRoom.Error(), Refused: true, Then: "the container runs in the balloon of type default",
		})
		f.t, f.group = p.typeNamed(defaultType), ""
		if name, why = f.choose(); name == "" {
			name, why = defaultType+"[0]", "the balloon of type default, although it has no room either"
		}
	}
	a.Group = placement.CPUGroup{Pool: placement.Balloon, PoolID: placement.PoolID{Name: name}, Threads: threadsOf(s)}
	devices, near := p.grantedDevices(f.t, s)
	a.Memberships, a.Devices, a.Why = f.memberships(name), devices, "balloon "+name+": "+why+near
	a.Memory = p.memoryOf(f.t, s)
	a.Scheduling, wrong = class.Scheduling(p.Options.SchedulingClasses).ClassOf(s, "placement.balloons", "the container gets the class of its balloon's type",
		f.t.SchedulingClass, "placement.balloons."+f.t.Name)
	a.Problems = append(a.Problems, wrong...)
	return a
}

// typeNamed returns the type with a name; nil if there is none.
func (p *Policy) typeNamed(name string) *TypeOptions {
	if i, known := p.typeIndexes[name]; known {
		return &p.types[i]
	}
	return nil
}

// lowestFreeIndex returns the lowest index that none of the balloons has. The balloons are of one type.
func lowestFreeIndex(all placement.Balloons) (index int) {
	for _, b := range all { // sorted by index
		if b.Index == index {
			index++
		}
	}
	return index
}

// balloonChoice chooses the balloon of one container.
type balloonChoice struct {
	p     *Policy
	v     placement.View
	t     *TypeOptions
	s     placement.Subject
	milli int64
	group string
	all   placement.Balloons // the balloons of the type
	idle  int                // how many more CPUs a balloon of the type can get
}

// choose returns the name of the balloon and the reason; "" if no balloon can take the container. The order
// of the attempts is that of nri-plugins (fillmethod.go).
func (f *balloonChoice) choose() (name, why string) {
	f.all, f.idle = f.v.Layout.Balloons.OfType(f.t.Name), f.p.idleCPUs(f.v.Layout, f.t).Len()
	if f.s.Balloon != "" && f.all.ByName(f.s.Balloon) != nil {
		return f.s.Balloon, "the container is already in this balloon"
	}
	for _, try := range f.attempts() {
		if name, why := try(); name != "" {
			return name, why
		}
	}
	return "", ""
}

// attempts returns the functions that choose a balloon, in the order in which they are tried.
func (f *balloonChoice) attempts() []func() (string, string) {
	var all []func() (string, string)
	if f.t.GroupBy != "" && f.group != "" {
		all = append(all, f.sameGroup)
	}
	if !f.t.PreferSpreadingPods {
		all = append(all, f.samePod)
	}
	if f.t.PreferPerNamespaceBalloon {
		all = append(all, f.sameNamespace, f.emptyOrNew)
	}
	if f.t.PreferNewBalloons {
		return append(all, f.emptyOrNew, f.mostRoomNow, f.mostRoomInflated)
	}
	return append(all, f.mostRoomNow, f.mostRoomInflated, f.emptyOrNew)
}

// memberships returns the namespace and the group of the container in a balloon, if the type places
// containers by these.
func (f *balloonChoice) memberships(name string) (all []placement.Membership) {
	if f.t.PreferPerNamespaceBalloon {
		all = append(all, placement.Membership{Balloon: name, Namespace: f.s.Pod.Namespace})
	}
	if f.group != "" {
		all = append(all, placement.Membership{Balloon: name, Group: f.group})
	}
	return all
}

// find returns the name of the first balloon that meets a condition; "" if none meets it.
func (f *balloonChoice) find(meets func(*placement.BalloonCPUs) bool) string {
	if i := slices.IndexFunc(f.all, meets); i >= 0 {
		return f.all[i].Need.PoolID.Name
	}
	return ""
}

// possibleRoom returns how many milli-CPUs a balloon could have free if it inflated as far as possible.
func (f *balloonChoice) possibleRoom(b *placement.BalloonCPUs) int64 {
	own := b.OwnCPUs.Len()
	return int64(max(own, min(own+f.idle, f.p.maxCPUsOf(f.t))))*milliOfCPU - b.Need.Milli
}

// fits reports whether a balloon can take the container, if it may inflate.
func (f *balloonChoice) fits(b *placement.BalloonCPUs) bool {
	return f.possibleRoom(b) >= f.milli && (!b.OwnCPUs.Empty() || f.p.maxCPUsOf(f.t) > 0 && f.idle > 0)
}

// fitsNow reports whether a balloon can take the container without inflating.
func (f *balloonChoice) fitsNow(b *placement.BalloonCPUs) bool {
	return !b.OwnCPUs.Empty() && freeMilli(b) >= f.milli
}

// freeMilli returns the milli-CPUs that a balloon has free.
func freeMilli(b *placement.BalloonCPUs) int64 {
	return int64(b.OwnCPUs.Len())*milliOfCPU - b.Need.Milli
}

// sameGroup returns a balloon with containers of the same group.
func (f *balloonChoice) sameGroup() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.hasMember(placement.Membership{Balloon: b.Need.PoolID.Name, Group: f.group})
	}), "the balloon has containers of the same group"
}

// samePod returns a balloon with containers of the same pod.
func (f *balloonChoice) samePod() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return slices.ContainsFunc(f.s.Neighbours, func(n placement.Neighbour) bool { return n.Pool == b.Need.PoolID.Name }) && f.fits(b)
	}), "the balloon has containers of the same pod"
}

// sameNamespace returns a balloon with containers of the same namespace.
func (f *balloonChoice) sameNamespace() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.hasMember(placement.Membership{Balloon: b.Need.PoolID.Name, Namespace: f.s.Pod.Namespace})
	}), "the balloon has containers of the same namespace"
}

// hasMember reports whether a balloon has a container with the membership.
func (f *balloonChoice) hasMember(m placement.Membership) bool {
	return f.v.CountMembers != nil && f.v.CountMembers(m) > 0
}

// emptyOrNew returns an empty balloon that can take the container, or the name of a new balloon.
func (f *balloonChoice) emptyOrNew() (string, string) {
	if name := f.find(func(b *placement.BalloonCPUs) bool { return b.Need.Members == 0 && f.fits(b) }); name != "" {
		return name, "the balloon was empty"
	}
	need := f.p.sizeOf(f.t, f.milli, true)
	if f.t.MaxBalloons != 0 && len(f.all) >= f.t.MaxBalloons || f.idle < need || int64(need)*milliOfCPU < f.milli {
		return "", ""
	}
	return f.t.balloonName(lowestFreeIndex(f.all)), "the balloon is new"
}

// mostRoomNow returns the balloon with the most free CPU time among those that need not inflate.
func (f *balloonChoice) mostRoomNow() (string, string) {
	return f.withMostRoom(f.fitsNow, freeMilli), "the balloon has the most free CPU time"
}

// mostRoomInflated returns the balloon that could have the most free CPU time after inflating.
func (f *balloonChoice) mostRoomInflated() (string, string) {
	return f.withMostRoom(f.fits, f.possibleRoom), "the balloon can inflate the most"
}

// withMostRoom returns the name of the balloon with the most room, among those that fit. Of balloons with
// equal room it returns the one with the fewest containers.
func (f *balloonChoice) withMostRoom(fits func(*placement.BalloonCPUs) bool, room func(*placement.BalloonCPUs) int64) string {
	var best *placement.BalloonCPUs
	for _, b := range f.all {
		if fits(b) && (best == nil || cmp.Or(cmp.Compare(room(b), room(best)), best.Need.Members-b.Need.Members) > 0) {
			best = b
		}
	}
	if best == nil {
		return ""
	}
	return best.Need.PoolID.Name
}
