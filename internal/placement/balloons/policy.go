package balloons

import (
	"cmp"
	"errors"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

const (
	milliOfCPU = 1000
	maxCPUs    = topology.MaxCPUs
)

// Policy is placement.policy: balloons.
type Policy struct {
	Machine *topology.Machine
	// Pick chooses the CPUs of balloons.
	Pick    Picker
	Options PolicyOptions
	types   []TypeOptions
	numbers map[string]int // of the types, by name
	threads placement.Cores
	// isolated are the isolated CPUs, and ownsIsolated reports that a type prefers them.
	isolated     topology.Set
	ownsIsolated bool
	// parts are the types of which balloons of each type consist, and hints where these get
	// their CPUs.
	parts map[string][]*TypeOptions
	hints map[string]hints
}

// Picker chooses n CPUs out of from, near to the CPUs that they are used with. If from has
// fewer it returns all of them. The package pick has the one that uses the allocator.
type Picker interface {
	Pick(n int, from, with topology.Set, p Preference) topology.Set
}

// Preference says which CPUs a balloon prefers.
type Preference struct {
	SpreadCores bool // one thread of each core first
	Emptiest    bool // the emptiest part of the node
}

// New returns the policy for a machine. The options are valid.
func New(m *topology.Machine, pick Picker, o PolicyOptions) *Policy {
	p := &Policy{Machine: m, Pick: pick, Options: o, types: Types(o), numbers: map[string]int{}, threads: placement.CoresOf(m), parts: map[string][]*TypeOptions{}}
	for i := range p.types {
		p.numbers[p.types[i].Name] = i
		p.parts[p.types[i].Name] = leavesOf(p.types, &p.types[i])
	}
	p.hints, p.isolated = hintsOf(m, p.types), m.Isolated()
	p.ownsIsolated = slices.ContainsFunc(p.types, func(t TypeOptions) bool { return t.PreferIsolCPUs })
	return p
}

// Terms lets containers own only CPUs that were assigned. The policy chooses memory nodes.
func (p *Policy) Terms(*topology.Machine, placement.Subject) placement.Terms {
	pins := func(t TypeOptions) bool { return p.pinsMemory(&t) }
	return placement.Terms{Chooses: p.Options.PinMemory || slices.ContainsFunc(p.types, pins)}
}

// Choose chooses nothing. Containers that own CPUs because of an earlier policy keep them.
func (p *Policy) Choose(_ placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	return placement.Assignment{CPUs: w.Have}, errors.New("the policy balloons gives containers only CPUs that a scheduler assigned")
}

// errFull is the problem of a container that no balloon of its type can take.
var errFull = errors.New("no suitable balloon instance available")

// Share puts a container into a balloon.
func (p *Policy) Share(v placement.View, s placement.Subject) (a placement.Assignment) {
	if v.PlacementOff || s.Pod == nil {
		a.Why = "placement is off"
		return a
	}
	who := Subject{Pod: s.Pod, QoS: s.Intent.QoS, Name: s.Name}
	if a.From = p.preserved(s, who); a.From != "" {
		a.Why, a.Memory.Keep = "no balloon type matches it, so it keeps the CPUs of its request", true
		return a
	}
	t, from, wrong := p.typeOf(s, who)
	a.From, a.Problems = from, wrong
	f := filling{p: p, v: v, t: t, s: s, milli: intent.SharesMilli(s.Requested.CPU.Shares.V)}
	if t.GroupBy != "" {
		f.group, _ = who.expand(t.GroupBy)
	}
	name, why := "", ""
	if had, _, _ := split(s.Balloon); had != defaultType || t.Name == defaultType {
		name, why = f.choose()
	} // a refusal at its creation is final, so that a restart moves nothing
	if name == "" {
		a.Problems = append(a.Problems, lifecycle.Problem{
			Key: "placement.balloons", Value: t.Name, Reason: errFull.Error(), Refused: true, Then: "it runs in the balloon of type default",
		})
		f.t, f.group = p.named(defaultType), ""
		if name, why = f.choose(); name == "" {
			name, why = defaultType+"[0]", "the balloon of type default, because no other type has room"
		}
	}
	a.Group = placement.CPUGroup{Pool: placement.Balloon, Which: placement.Which{Name: name}, Threads: threadsOf(s)}
	a.Marks, a.Why = f.marks(name), "balloon "+name+": "+why
	a.Memory = p.memoryOf(f.t, s)
	a.Scheduling, wrong = p.schedulingOf(f.t, s)
	a.Problems = append(a.Problems, wrong...)
	return a
}

// named returns a type by name; nil if there is none.
func (p *Policy) named(name string) *TypeOptions {
	if i, known := p.numbers[name]; known {
		return &p.types[i]
	}
	return nil
}

// free returns the lowest index that no balloon has.
func free(all placement.Balloons) (index int) {
	for _, b := range all { // sorted by index
		if b.Index == index {
			index++
		}
	}
	return index
}

// filling chooses the balloon of one container.
type filling struct {
	p     *Policy
	v     placement.View
	t     *TypeOptions
	s     placement.Subject
	milli int64
	group string
	all   placement.Balloons // of the type
	idle  int                // how many more CPUs a balloon of the type can get
}

// choose returns the name of the balloon, and why; "" if no balloon can take the container.
// The order of the attempts is that of nri-plugins (fillmethod.go).
func (f *filling) choose() (name, why string) {
	f.all, f.idle = f.v.Layout.Balloons.OfType(f.t.Name), f.p.from(f.v.Layout, f.t).Len()
	if f.s.Balloon != "" && f.all.Of(f.s.Balloon) != nil {
		return f.s.Balloon, "the container is already in this balloon"
	}
	for _, try := range f.attempts() {
		if name, why := try(); name != "" {
			return name, why
		}
	}
	return "", ""
}

func (f *filling) attempts() []func() (string, string) {
	var all []func() (string, string)
	if f.t.GroupBy != "" && f.group != "" {
		all = append(all, f.sameGroup)
	}
	if !f.t.PreferSpreadingPods {
		all = append(all, f.samePod)
	}
	if f.t.PreferPerNamespaceBalloon {
		all = append(all, f.sameNamespace, f.fresh)
	}
	if f.t.PreferNewBalloons {
		return append(all, f.fresh, f.balanced, f.inflated)
	}
	return append(all, f.balanced, f.inflated, f.fresh)
}

// marks returns what the type distinguishes containers by.
func (f *filling) marks(name string) (all []placement.Mark) {
	if f.t.PreferPerNamespaceBalloon {
		all = append(all, placement.Mark{Balloon: name, Namespace: f.s.Pod.Namespace})
	}
	if f.group != "" {
		all = append(all, placement.Mark{Balloon: name, Group: f.group})
	}
	return all
}

// find returns the name of the first balloon that meets a condition; "" if none does.
func (f *filling) find(meets func(*placement.BalloonCPUs) bool) string {
	if i := slices.IndexFunc(f.all, meets); i >= 0 {
		return f.all[i].Need.Which.Name
	}
	return ""
}

// room returns the milli-CPUs that a balloon could have free. It counts CPUs that it can get.
func (f *filling) room(b *placement.BalloonCPUs) int64 {
	own := b.Own.Len()
	return int64(max(own, min(own+f.idle, f.p.mostOf(f.t))))*milliOfCPU - b.Need.Milli
}

// fits reports whether a balloon can take the container, perhaps by inflating.
func (f *filling) fits(b *placement.BalloonCPUs) bool {
	return f.room(b) >= f.milli && (!b.Own.Empty() || f.p.mostOf(f.t) > 0 && f.idle > 0)
}

// fitsNow reports whether it can without inflating.
func (f *filling) fitsNow(b *placement.BalloonCPUs) bool {
	return !b.Own.Empty() && left(b) >= f.milli
}

// left returns the milli-CPUs that a balloon has free.
func left(b *placement.BalloonCPUs) int64 { return int64(b.Own.Len())*milliOfCPU - b.Need.Milli }

func (f *filling) sameGroup() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.in(placement.Mark{Balloon: b.Need.Which.Name, Group: f.group})
	}), "the balloon has containers of the same group"
}

func (f *filling) samePod() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return slices.ContainsFunc(f.s.Neighbours, func(n placement.Neighbour) bool { return n.Pool == b.Need.Which.Name }) && f.fits(b)
	}), "the balloon has containers of the same pod"
}

func (f *filling) sameNamespace() (string, string) {
	return f.find(func(b *placement.BalloonCPUs) bool {
		return f.fits(b) && f.in(placement.Mark{Balloon: b.Need.Which.Name, Namespace: f.s.Pod.Namespace})
	}), "the balloon has containers of the same namespace"
}

func (f *filling) in(m placement.Mark) bool { return f.v.InBalloon != nil && f.v.InBalloon(m) > 0 }

// fresh returns an empty balloon that can take the container, or a new one.
func (f *filling) fresh() (string, string) {
	if name := f.find(func(b *placement.BalloonCPUs) bool { return b.Need.Members == 0 && f.fits(b) }); name != "" {
		return name, "the balloon was empty"
	}
	need := f.p.sizeOf(f.t, f.milli, true)
	if f.t.MaxBalloons != 0 && len(f.all) >= f.t.MaxBalloons || f.idle < need || int64(need)*milliOfCPU < f.milli {
		return "", ""
	}
	return f.t.balloon(free(f.all)), "the balloon is new"
}

// balanced returns the balloon with the most room among those that need not inflate.
func (f *filling) balanced() (string, string) {
	return f.most(f.fitsNow, left), "the balloon has the most free CPU time"
}

// inflated returns the balloon that could have the most room.
func (f *filling) inflated() (string, string) {
	return f.most(f.fits, f.room), "the balloon can inflate the most"
}

// most returns the name of the balloon with the most room, and of these the one with the
// fewest containers.
func (f *filling) most(fits func(*placement.BalloonCPUs) bool, room func(*placement.BalloonCPUs) int64) string {
	var best *placement.BalloonCPUs
	for _, b := range f.all {
		if fits(b) && (best == nil || cmp.Or(cmp.Compare(room(b), room(best)), best.Need.Members-b.Need.Members) > 0) {
			best = b
		}
	}
	if best == nil {
		return ""
	}
	return best.Need.Which.Name
}
