package balloons

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

// loadClass says what the containers of a balloon, or of a part of a balloon, use heavily: the cores or the L2 caches
// of its CPUs.
type loadClass struct {
	level topology.Level // CoreLevel for cores, L2Level for L2 caches
	// alsoWithinBalloon means that no two CPUs of the balloon should share a core (or an L2 cache, if level is the L2
	// cache).
	alsoWithinBalloon bool
}

// loadsOf returns the load classes of the given types. The types are the type of a balloon, and the type of a part of
// this balloon.
func (p *Policy) loadsOf(types ...*TypeOptions) (all []loadClass) {
	for _, t := range types {
		for _, o := range p.Options.LoadClasses {
			if slices.Contains(t.Loads, o.Name) {
				all = append(all, loadClass{map[string]topology.Level{"core": topology.CoreLevel, "l2cache": topology.L2Level}[o.Level], o.OverloadsLevelInBalloon})
			}
		}
	}
	return all
}

// cpusToAvoid returns, for each load class of a part, the CPUs that the part should avoid. These CPUs share a core or
// an L2 cache with a CPU of another part that has a load class of the same level. With alsoWithinBalloon, the result
// also has the CPUs that share a core or an L2 cache with the part's own CPUs.
func (w *layoutRun) cpusToAvoid(b *sizedBalloon, s *balloonPart) (sets []topology.Set) {
	for _, l := range w.policy.loadsOf(b.balloonType, s.balloonType) {
		cpus := w.loadedCPUs(l.level, w.layout.Balloons, func(name string) bool {
			return slices.Contains(w.removed, name) || slices.ContainsFunc(w.pending, func(d sizedBalloon) bool { return d.poolID.Name == name })
		})
		for i := range w.pending {
			for n := range w.pending[i].parts {
				if o := &w.pending[i].parts[n]; o != s && w.policy.hasLoad(l.level, w.pending[i].balloonType, o.balloonType) {
					cpus = cpus.Union(w.policy.Machine.ExpandToGroups(l.level, o.cpus))
				}
			}
		}
		if l.alsoWithinBalloon {
			cpus = cpus.Union(w.policy.Machine.ExpandToGroups(l.level, s.cpus))
		}
		sets = append(sets, cpus)
	}
	return sets
}

// previousCPUsToAvoid returns, for each load class of a part, the CPUs that share a core or an L2 cache with a CPU of
// another balloon in the previous layout. The other balloon must have a load class of the same level. If the part gets
// smaller, it should give up these CPUs.
func (w *layoutRun) previousCPUsToAvoid(b *sizedBalloon, s *balloonPart) (sets []topology.Set) {
	for _, l := range w.policy.loadsOf(b.balloonType, s.balloonType) {
		sets = append(sets, w.loadedCPUs(l.level, w.previous, func(name string) bool { return name == b.poolID.Name }))
	}
	return sets
}

// loadedCPUs returns the CPUs near balloons that have a load class of the parameter level. Near means that a CPU shares
// a core, or an L2 cache, with a CPU of the balloon; level says which of the two. loadedCPUs leaves out the balloons
// for whose names the function skips returns true.
func (w *layoutRun) loadedCPUs(level topology.Level, all placement.Balloons, skips func(name string) bool) (cpus topology.Set) {
	p := w.policy
	for _, o := range all {
		name := o.Need.PoolID.Name
		of, _, _ := splitName(name)
		t := p.typeNamed(of)
		if t == nil || skips(name) {
			continue
		}
		if len(o.Components) == 0 && p.hasLoad(level, t) {
			cpus = cpus.Union(p.Machine.ExpandToGroups(level, o.OwnCPUs))
		}
		for _, part := range o.Components {
			if i, is := componentIndex(part.Name); is && i < len(p.partTypes[of]) && p.hasLoad(level, t, p.partTypes[of][i]) {
				cpus = cpus.Union(p.Machine.ExpandToGroups(level, part.CPUs))
			}
		}
	}
	return cpus
}

// hasLoad reports whether one of the types has a load class of the level.
func (p *Policy) hasLoad(level topology.Level, types ...*TypeOptions) bool {
	return slices.ContainsFunc(p.loadsOf(types...), func(l loadClass) bool { return l.level == level })
}

// picksOneByOne reports whether a part must get its CPUs one at a time, because each new CPU should avoid the cores or
// L2 caches of the CPUs that the part already has.
func (p *Policy) picksOneByOne(b *sizedBalloon, s *balloonPart) bool {
	return slices.ContainsFunc(p.loadsOf(b.balloonType, s.balloonType), func(l loadClass) bool { return l.alsoWithinBalloon })
}

// checkLoads returns the problems of loadClasses, and of the key loads of the types.
func checkLoads(o PolicyOptions) []class.Problem {
	known, wrong := class.CheckNames(len(o.LoadClasses), "loadClasses", func(i int) string { return o.LoadClasses[i].Name })
	for i := range o.BalloonTypes {
		for n, name := range o.BalloonTypes[i].Loads {
			if !known[name] {
				wrong = append(wrong, class.Problem{Path: fmt.Sprintf("balloonTypes[%d].loads[%d]", i, n), Text: class.Quote(name) + " is not a class of loadClasses"})
			}
		}
	}
	return wrong
}
