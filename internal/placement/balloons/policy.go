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
	p := &Policy{Machine: m, Pick: pick, Options: o, types: Types(o), parts: map[string][]*TypeOptions{}}
	for i := range p.types {
		p.parts[p.types[i].Name] = leavesOf(p.types, &p.types[i])
	}
	p.hints = hintsOf(m, p.types)
	return p
}

// Terms lets containers own only CPUs that were assigned. The policy chooses memory nodes.
func (p *Policy) Terms(*topology.Machine, placement.Subject) placement.Terms {
	pins := func(t TypeOptions) bool { return p.pinsMemory(&t) }
	return placement.Terms{Chooses: p.Options.PinMemory || slices.ContainsFunc(p.types, pins)}
}

// Choose chooses nothing. Containers that own CPUs because of an earlier policy keep them.
func (p *Policy) Choose(_ placement.View, _ placement.Subject, w placement.CPURequest) (placement.Assignment, error) {
	return placement.Assignment{CPUs: w.Have}, errors.New("the policy balloons lets no container own CPUs that no scheduler assigned")
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
		a.Why, a.Memory.Keep = "no balloon takes it, so its CPUs are as requested", true
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
			name, why = defaultType+"[0]", "the balloon of type default, for want of another"
		}
	}
	a.Group = placement.CPUGroup{Pool: placement.Balloon, Which: placement.Which{Name: name}, Threads: threadsOf(s)}
	a.Marks, a.Why = f.marks(name), "balloon "+name+": "+why
	a.Memory = p.memoryOf(f.t, s)
	return a
}

// named returns a type by name; nil if there is none.
func (p *Policy) named(name string) *TypeOptions {
	if i := slices.IndexFunc(p.types, func(t TypeOptions) bool { return t.Name == name }); i >= 0 {
		return &p.types[i]
	}
	return nil
}

// instance is a balloon of the layout.
type instance struct {
	name    string
	index   int
	own     int // CPUs that it has
	milli   int64
	members int
}

// instances lists the balloons of a type, by index.
func (p *Policy) instances(l *placement.Layout, t *TypeOptions) (all []instance) {
	for w, b := range l.Balloons {
		if name, i, ok := split(w.Name); ok && name == t.Name {
			all = append(all, instance{w.Name, i, b.Own.Len(), l.Demand.Needs[w], l.Demand.Members[w]})
		}
	}
	slices.SortFunc(all, func(a, b instance) int { return cmp.Compare(a.index, b.index) })
	return all
}

// free returns the lowest index that no balloon has.
func free(all []instance) (index int) {
	for _, b := range all {
		if b.index == index {
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
	all   []instance
}

// choose returns the name of the balloon, and why; "" if no balloon can take the container.
// The order of the attempts is that of nri-plugins (fillmethod.go).
func (f *filling) choose() (name, why string) {
	f.all = f.p.instances(f.v.Layout, f.t)
	if b, ok := f.find(func(b instance) bool { return b.name == f.s.Balloon }); ok {
		return b.name, "it is in it"
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

// find returns the first balloon that meets a condition.
func (f *filling) find(meets func(instance) bool) (none instance, ok bool) {
	if i := slices.IndexFunc(f.all, meets); i >= 0 {
		return f.all[i], true
	}
	return none, false
}

// idle returns how many more CPUs a balloon of the type can get.
func (f *filling) idle() int { return f.p.from(f.v.Layout, f.t).Len() }

// room returns the milli-CPUs that a balloon could have free. It counts CPUs that it can get.
func (f *filling) room(b instance) int64 {
	return int64(max(b.own, min(b.own+f.idle(), f.p.mostOf(f.t))))*milliOfCPU - b.milli
}

// fits reports whether a balloon can take the container, perhaps by inflating.
func (f *filling) fits(b instance) bool {
	return f.room(b) >= f.milli && (b.own > 0 || f.p.mostOf(f.t) > 0 && f.idle() > 0)
}

// fitsNow reports whether it can without inflating.
func (f *filling) fitsNow(b instance) bool {
	return b.own > 0 && int64(b.own)*milliOfCPU-b.milli >= f.milli
}

func (f *filling) sameGroup() (string, string) {
	b, _ := f.find(func(b instance) bool { return f.in(placement.Mark{Balloon: b.name, Group: f.group}) && f.fits(b) })
	return b.name, "containers of its group are in it"
}

func (f *filling) samePod() (string, string) {
	b, _ := f.find(func(b instance) bool { return slices.Contains(f.s.PodBalloons, b.name) && f.fits(b) })
	return b.name, "containers of its pod are in it"
}

func (f *filling) sameNamespace() (string, string) {
	b, _ := f.find(func(b instance) bool {
		return f.in(placement.Mark{Balloon: b.name, Namespace: f.s.Pod.Namespace}) && f.fits(b)
	})
	return b.name, "containers of its namespace are in it"
}

func (f *filling) in(m placement.Mark) bool { return f.v.InBalloon != nil && f.v.InBalloon(m) > 0 }

// fresh returns an empty balloon that can take the container, or a new one.
func (f *filling) fresh() (string, string) {
	if b, ok := f.find(func(b instance) bool { return b.members == 0 && f.fits(b) }); ok {
		return b.name, "it was empty"
	}
	need := f.p.sizeOf(f.t, f.milli, true)
	if f.t.MaxBalloons != 0 && len(f.all) >= f.t.MaxBalloons || f.idle() < need || int64(need)*milliOfCPU < f.milli {
		return "", ""
	}
	return f.t.balloon(free(f.all)), "it is new"
}

// balanced returns the balloon with the most room among those that need not inflate.
func (f *filling) balanced() (string, string) {
	return f.most(f.fitsNow, func(b instance) int64 { return int64(b.own)*milliOfCPU - b.milli }), "it has the most CPU time left"
}

// inflated returns the balloon that could have the most room.
func (f *filling) inflated() (string, string) {
	return f.most(f.fits, f.room), "it can inflate the most"
}

// most returns the name of the balloon with the most room, and of these the one with the
// fewest containers.
func (f *filling) most(fits func(instance) bool, room func(instance) int64) string {
	var best *instance
	for i := range f.all {
		b := &f.all[i]
		if fits(*b) && (best == nil || cmp.Or(cmp.Compare(room(*b), room(*best)), best.members-b.members) > 0) {
			best = b
		}
	}
	if best == nil {
		return ""
	}
	return best.name
}
