package balloons

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/topology"
)

// defaultClass is the name of a CPU class. If the class exists, it applies to the types without cpuClass, and to the
// idle CPUs if idleCPUClass is empty.
const defaultClass = "default"

// class converts the options to a CPU class. The frequencies in the options must be valid.
func (o *CPUClassOptions) class() lifecycle.CPUClass {
	c := lifecycle.CPUClass{Name: o.Name, Governor: o.FreqGovernor, EnergyPreference: o.EnergyPerformancePreference, DisabledCStates: o.DisabledCStates}
	c.MinFreq, _ = lifecycle.ParseFrequency(o.MinFreq)
	c.MaxFreq, _ = lifecycle.ParseFrequency(o.MaxFreq)
	return c
}

// CPUClasses returns the CPU classes of a configuration.
func CPUClasses(o PolicyOptions) (all []lifecycle.CPUClass) {
	for i := range o.CPUClasses {
		all = append(all, o.CPUClasses[i].class())
	}
	return all
}

// classOf returns the class with a name; nil if there is none. An empty name means defaultClass.
func (p *Policy) classOf(name string) *lifecycle.CPUClass {
	if name == "" {
		name = defaultClass
	}
	i := slices.IndexFunc(p.classes, func(c lifecycle.CPUClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.classes[i]
}

// cpuClasses returns the CPUs of a layout by CPU class. The CPUs of balloons come first, in the order of the classes in
// the configuration, and then by balloon type. The idle CPUs come last. CPUs that containers own have no class.
func (p *Policy) cpuClasses(l *placement.Layout) (all []placement.ClassCPUs) {
	cpusOf := map[string]map[string]topology.Set{} // by the names of the class and of the balloon type
	put := func(t *TypeOptions, cpus topology.Set) {
		if c := p.classOf(t.CPUClass); c != nil && !cpus.Empty() {
			if cpusOf[c.Name] == nil {
				cpusOf[c.Name] = map[string]topology.Set{}
			}
			cpusOf[c.Name][t.Name] = cpusOf[c.Name][t.Name].Union(cpus)
		}
	}
	for _, b := range l.Balloons {
		name, _, _ := splitName(b.Need.PoolID.Name)
		if len(b.Components) == 0 {
			put(p.typeNamed(name), b.OwnCPUs)
		}
		for _, part := range b.Components {
			if i, ok := componentIndex(part.Name); ok {
				put(p.partTypes[name][i], part.CPUs)
			}
		}
	}
	for i := range p.classes {
		types := cpusOf[p.classes[i].Name]
		for _, name := range slices.Sorted(maps.Keys(types)) {
			all = append(all, placement.ClassCPUs{Class: p.classes[i], Type: name, CPUs: types[name]})
		}
	}
	if c := p.classOf(p.Options.IdleCPUClass); c != nil && !l.Idle.Empty() {
		all = append(all, placement.ClassCPUs{Class: *c, CPUs: l.Idle, Idle: true})
	}
	return all
}

// checkCPUClasses returns the problems of cpuClasses, and of the keys cpuClass and idleCPUClass.
func checkCPUClasses(o PolicyOptions) []class.Problem {
	known, wrong := class.CheckNames(len(o.CPUClasses), "cpuClasses", func(i int) string { return o.CPUClasses[i].Name })
	for i := range o.CPUClasses {
		c, at := &o.CPUClasses[i], fmt.Sprintf("cpuClasses[%d].", i)
		low, _ := c.class().MinFreq.KHz()
		high, limited := c.class().MaxFreq.KHz()
		if limited && low > high {
			wrong = append(wrong, class.Problem{Path: at + "minFreq", Text: fmt.Sprintf("is %s, above maxFreq, which is %s", c.MinFreq, c.MaxFreq)})
		}
	}
	if name := o.IdleCPUClass; name != "" && !known[name] {
		wrong = append(wrong, class.Problem{Path: "idleCPUClass", Text: class.Quote(name) + " is not a class of cpuClasses"})
	}
	for i := range o.BalloonTypes {
		t, at := &o.BalloonTypes[i], fmt.Sprintf("balloonTypes[%d].cpuClass", i)
		switch {
		case t.CPUClass == "":
		case !known[t.CPUClass]:
			wrong = append(wrong, class.Problem{Path: at, Text: class.Quote(t.CPUClass) + " is not a class of cpuClasses"})
		case len(t.Components) > 0:
			wrong = append(wrong, class.Problem{Path: at, Text: "is not allowed in a type with components: set it in the types of the components"})
		}
	}
	return wrong
}
