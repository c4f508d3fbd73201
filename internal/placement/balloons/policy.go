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
	milliOfCPU = 1000             // the milli-CPUs of one CPU
	maxCPUs    = topology.MaxCPUs // the largest possible number of CPUs of a balloon
)

// Policy is the policy for placement.policy: balloons.
type Policy struct {
	Machine *topology.Machine
	// Pick chooses the CPUs of balloons.
	Pick        Picker
	Options     PolicyOptions
	types       []TypeOptions  // all balloon types, including those named reserved and default
	typeIndexes map[string]int // the indexes in types, by the type's name
	cores       placement.Cores
	// isolated are the isolated CPUs of the machine. usesIsolated reports that a type prefers isolated CPUs.
	isolated     topology.Set
	usesIsolated bool
	// partTypes has, by the name of a balloon type, the simple types of which a balloon of this type consists. A simple
	// type has no components. hints has, by the name of a balloon type, the CPUs that its balloons should have or
	// avoid.
	partTypes map[string][]*TypeOptions
	hints     map[string]hints
	// usesGrantedDevices reports that a type prefers CPUs near devices that the kubelet grants to containers.
	usesGrantedDevices bool
	// classes are the CPU classes of the configuration.
	classes []lifecycle.CPUClass
}

// Picker chooses the CPUs of balloons. Package pick has the implementation.
type Picker interface {
	// Pick chooses n of the candidates, or all candidates if there are fewer. It prefers CPUs near those in ownCPUs.
	Pick(n int, candidates, ownCPUs topology.Set, p Preference) topology.Set
}

// Preference says which CPUs a balloon prefers.
type Preference struct {
	SpreadCores bool // prefer one thread of each core
	Emptiest    bool // prefer CPUs in the part of the node with the most candidates
}

// New returns the policy for a machine. The options must be valid.
func New(m *topology.Machine, pick Picker, o PolicyOptions) *Policy {
	p := &Policy{Machine: m, Pick: pick, Options: o, types: Types(o), typeIndexes: map[string]int{}, cores: placement.CoresOf(m), partTypes: map[string][]*TypeOptions{}}
	for i := range p.types {
		p.typeIndexes[p.types[i].Name] = i
		p.partTypes[p.types[i].Name] = leafTypesOf(p.types, &p.types[i])
	}
	p.usesGrantedDevices = slices.ContainsFunc(p.types, func(t TypeOptions) bool { return len(devicePatterns([]*TypeOptions{&t})) > 0 })
	p.classes = CPUClasses(o)
	p.hints, p.isolated = hintsOf(m, p.types), m.IsolatedCPUs()
	p.usesIsolated = slices.ContainsFunc(p.types, func(t TypeOptions) bool { return t.PreferIsolCPUs })
	return p
}

// Terms returns the conditions under which containers own CPUs: only if a scheduler assigned the CPUs. The policy
// chooses memory nodes if pinMemory is on, in the policy or in a type.
func (p *Policy) Terms(*topology.Machine, placement.Subject) placement.Terms {
	pins := func(t TypeOptions) bool { return p.pinsMemory(&t) }
	return placement.Terms{
		ChoosesCPUsOrMemory: p.Options.PinMemory || slices.ContainsFunc(p.types, pins), NearDevices: p.usesGrantedDevices, PoolsNearDevices: p.usesGrantedDevices,
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
	f := balloonChoice{policy: p, view: v, balloonType: t, subject: s, requestedMilli: intent.MilliFromShares(s.Requested.CPU.Shares.V)}
	if t.GroupBy != "" {
		f.group, _ = who.Expand(t.GroupBy)
	}
	name, why := "", ""
	// Suppose that the balloons of the container's type had no room when the container was created. The container then
	// stays in a balloon of the type "default", also after a restart of the agent.
	if had, _, _ := splitName(s.PoolName); had != defaultType || t.Name == defaultType {
		name, why = f.choose()
	}
	if name == "" {
		a.Problems = append(a.Problems, lifecycle.Problem{
			Key: "placement.balloons", Value: t.Name, Reason: errNoRoom.Error(), Refused: true, Then: "the container runs in the balloon of type default",
		})
		f.balloonType, f.group = p.typeNamed(defaultType), ""
		if name, why = f.choose(); name == "" {
			name, why = defaultType+"[0]", "the balloon of type default, although this balloon has no room either"
		}
	}
	a.Group = placement.CPUGroup{Pool: placement.Balloon, PoolID: placement.PoolID{Name: name}, Threads: threadsOf(s)}
	devices, near := p.grantedDevices(f.balloonType, s)
	a.Memberships, a.Devices, a.Why = f.memberships(name), devices, "balloon "+name+": "+why+near
	a.Memory = p.memoryOf(f.balloonType, s)
	a.Scheduling, wrong = class.SchedulingClasses(p.Options.SchedulingClasses).ClassOf(s, "placement.balloons", "the container gets the class of its balloon's type",
		f.balloonType.SchedulingClass, "placement.balloons."+f.balloonType.Name)
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
	policy         *Policy
	view           placement.View
	balloonType    *TypeOptions
	subject        placement.Subject
	requestedMilli int64
	group          string             // the container's value of TypeOptions.GroupBy; "" for none
	balloons       placement.Balloons // the balloons of the type
	idleCPUCount   int                // how many idle CPUs balloons of the type may get
}

// choose returns the name of the balloon and the reason; "" if no balloon can take the container. The order
// of the attempts is that of nri-plugins (fillmethod.go).
func (f *balloonChoice) choose() (name, why string) {
	f.balloons, f.idleCPUCount = f.view.Layout.Balloons.OfType(f.balloonType.Name), f.policy.idleCPUs(f.view.Layout, f.balloonType).Len()
	if f.subject.PoolName != "" && f.balloons.ByName(f.subject.PoolName) != nil {
		return f.subject.PoolName, "the container is already in this balloon"
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
	if f.balloonType.GroupBy != "" && f.group != "" {
		all = append(all, f.sameGroup)
	}
	if !f.balloonType.PreferSpreadingPods {
		all = append(all, f.samePod)
	}
	if f.balloonType.PreferPerNamespaceBalloon {
		all = append(all, f.sameNamespace, f.emptyOrNew)
	}
	if f.balloonType.PreferNewBalloons {
		return append(all, f.emptyOrNew, f.mostRoomNow, f.mostRoomInflated)
	}
	return append(all, f.mostRoomNow, f.mostRoomInflated, f.emptyOrNew)
}

// memberships returns entries by which later containers find this balloon. One entry has the container's namespace, if
// the type has preferPerNamespaceBalloon. One entry has the container's group, if the type has groupBy.
func (f *balloonChoice) memberships(name string) (all []placement.Membership) {
	if f.balloonType.PreferPerNamespaceBalloon {
		all = append(all, placement.Membership{Balloon: name, Namespace: f.subject.Pod.Namespace})
	}
	if f.group != "" {
		all = append(all, placement.Membership{Balloon: name, Group: f.group})
	}
	return all
}

// find returns the name of the first balloon that meets a condition; "" if none meets it.
func (f *balloonChoice) find(meets func(*placement.BalloonCPUs) bool) string {
	if i := slices.IndexFunc(f.balloons, meets); i >= 0 {
		return f.balloons[i].Need.PoolID.Name
	}
	return ""
}

// possibleRoom returns how many milli-CPUs are free in a balloon after it inflates as far as possible.
func (f *balloonChoice) possibleRoom(b *placement.BalloonCPUs) int64 {
	own := b.OwnCPUs.Len()
	return int64(max(own, min(own+f.idleCPUCount, f.policy.maxCPUsOf(f.balloonType))))*milliOfCPU - b.Need.MilliCPUs
}

// fits reports whether a balloon can take the container, after inflating if that is necessary.
func (f *balloonChoice) fits(b *placement.BalloonCPUs) bool {
	return f.possibleRoom(b) >= f.requestedMilli && (!b.OwnCPUs.Empty() || f.policy.maxCPUsOf(f.balloonType) > 0 && f.idleCPUCount > 0)
}

// fitsNow reports whether a balloon can take the container without inflating.
func (f *balloonChoice) fitsNow(b *placement.BalloonCPUs) bool {
	return !b.OwnCPUs.Empty() && freeMilli(b) >= f.requestedMilli
}

// freeMilli returns the milli-CPUs of a balloon that its containers do not request.
func freeMilli(b *placement.BalloonCPUs) int64 {
	return int64(b.OwnCPUs.Len())*milliOfCPU - b.Need.MilliCPUs
}

// sameGroup returns the name of a balloon with containers of the same group, and the reason.
func (f *balloonChoice) sameGroup() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.hasMember(placement.Membership{Balloon: b.Need.PoolID.Name, Group: f.group})
	}), "the balloon has containers of the same group"
}

// samePod returns the name of a balloon with containers of the same pod, and the reason.
func (f *balloonChoice) samePod() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return slices.ContainsFunc(f.subject.Neighbours, func(n placement.Neighbour) bool { return n.Pool == b.Need.PoolID.Name }) && f.fits(b)
	}), "the balloon has containers of the same pod"
}

// sameNamespace returns the name of a balloon with containers of the same namespace, and the reason.
func (f *balloonChoice) sameNamespace() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.hasMember(placement.Membership{Balloon: b.Need.PoolID.Name, Namespace: f.subject.Pod.Namespace})
	}), "the balloon has containers of the same namespace"
}

// hasMember reports whether a balloon already has a container of a namespace, or of a group. The parameter m names the
// balloon, and the namespace or the group.
func (f *balloonChoice) hasMember(m placement.Membership) bool {
	return f.view.CountMembers != nil && f.view.CountMembers(m) > 0
}

// emptyOrNew returns the name of an empty balloon that can take the container, or else of a new balloon, and the
// reason.
func (f *balloonChoice) emptyOrNew() (string, string) {
	if name := f.find(func(b *placement.BalloonCPUs) bool { return b.Need.Members == 0 && f.fits(b) }); name != "" {
		return name, "the balloon was empty"
	}
	need := f.policy.sizeOf(f.balloonType, f.requestedMilli, true)
	if f.balloonType.MaxBalloons != 0 && len(f.balloons) >= f.balloonType.MaxBalloons || f.idleCPUCount < need || int64(need)*milliOfCPU < f.requestedMilli {
		return "", ""
	}
	return f.balloonType.balloonName(lowestFreeIndex(f.balloons)), "the balloon is new"
}

// mostRoomNow returns the name of the balloon with the most free CPU time, and the reason. It considers only balloons
// that can take the container without inflating.
func (f *balloonChoice) mostRoomNow() (string, string) {
	return f.withMostRoom(f.fitsNow, freeMilli), "the balloon has the most free CPU time"
}

// mostRoomInflated returns the name of the balloon with the most free CPU time after inflating, and the reason.
func (f *balloonChoice) mostRoomInflated() (string, string) {
	return f.withMostRoom(f.fits, f.possibleRoom), "the balloon has the most free CPU time after it inflates"
}

// withMostRoom returns the name of the balloon with the most room, among those that fit. Of balloons with
// equal room it returns the one with the fewest containers.
func (f *balloonChoice) withMostRoom(fits func(*placement.BalloonCPUs) bool, room func(*placement.BalloonCPUs) int64) string {
	var best *placement.BalloonCPUs
	for _, b := range f.balloons {
		if fits(b) && (best == nil || cmp.Or(cmp.Compare(room(b), room(best)), best.Need.Members-b.Need.Members) > 0) {
			best = b
		}
	}
	if best == nil {
		return ""
	}
	return best.Need.PoolID.Name
}
