package nodeview

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// WantedClasses returns the classes that CPUs should have. It names CPUs by their kernel ids.
func WantedClasses(s *engine.State) (all []cpuclass.WantedClass) {
	for _, c := range s.CPUClasses() {
		last := len(all) - 1
		if last < 0 || all[last].Class.Name != c.Class.Name || all[last].Idle != c.Idle { // these CPUs have another class than the last ones
			all, last = append(all, cpuclass.WantedClass{Class: c.Class, Idle: c.Idle}), last+1
		}
		all[last].CPUs = append(all[last].CPUs, cpuIDs(s.Machine, c.CPUs)...)
	}
	for _, w := range all {
		slices.Sort(w.CPUs)
	}
	return all
}

// cpuIDs returns the kernel ids of CPUs.
func cpuIDs(m *topology.Machine, cpus topology.Set) (all []int) {
	for _, at := range cpus.Members() {
		all = append(all, m.CPUs[at].ID)
	}
	return all
}

// hasClasses reports whether a report has something about CPU classes: a CPU should have a class, or the agent could
// not set a class, or the agent repaired values of a class.
func hasClasses(r cpuclass.Report) bool { return len(r.Wanted)+len(r.Faults) > 0 || r.Repairs > 0 }

// CPUClasses describes the CPU classes for status; nil if there are none.
func CPUClasses(r cpuclass.Report) *api.CPUClasses {
	if !hasClasses(r) {
		return nil
	}
	out := &api.CPUClasses{Repairs: r.Repairs, LastRepair: r.LastRepair}
	for _, w := range r.Wanted {
		out.Classes = append(out.Classes, api.CPUClass{Name: w.Class.Name, CPUs: topology.FormatList(w.CPUs), Idle: w.Idle})
	}
	for _, f := range r.Faults {
		out.Faults = append(out.Faults, api.CPUClassFault{Class: f.Class, CPUs: topology.FormatList(f.CPUs), Reason: f.Reason})
	}
	return out
}

// classCounts counts the CPUs that should have a class and do not have it; nil if there are no classes.
func classCounts(r cpuclass.Report) *api.CPUClassCounts {
	if !hasClasses(r) {
		return nil
	}
	out := &api.CPUClassCounts{Repairs: r.Repairs}
	for _, f := range r.Faults {
		out.WithoutClass += len(f.CPUs)
	}
	return out
}

// containerClasses describes the classes of a container's CPUs; nil if no CPU of the node should have a class.
func (v *View) containerClasses(ctr *engine.Container) (out []api.ContainerCPUClass) {
	classes := v.State.CPUClasses()
	if len(classes) == 0 || !ctr.Alive() {
		return nil
	}
	unclassified := v.State.CPUs(ctr)
	for _, c := range classes {
		withClass := unclassified.And(c.CPUs)
		unclassified = unclassified.Minus(withClass)
		out = append(out, v.classResults(c, cpuIDs(v.State.Machine, withClass))...)
	}
	if !unclassified.Empty() {
		out = append(out, api.ContainerCPUClass{CPUs: v.State.Machine.Format(unclassified)})
	}
	return out
}

// classResults returns, for CPUs that should have one class, whether they have it. CPUs with the same result share one
// entry.
func (v *View) classResults(c placement.ClassCPUs, cpus []int) (out []api.ContainerCPUClass) {
	var cpusOf [][]int
	for _, cpu := range cpus {
		r := v.classResult(c.Class.Name, cpu)
		r.Class, r.BalloonType = c.Class.Name, c.Type
		i := slices.Index(out, r)
		if i < 0 {
			i, out, cpusOf = len(out), append(out, r), append(cpusOf, nil)
		}
		cpusOf[i] = append(cpusOf[i], cpu)
	}
	for i := range out {
		out[i].CPUs = topology.FormatList(cpusOf[i])
	}
	return out
}

// classResult returns whether a CPU has the class with this name, or else the reason why it does not have it.
func (v *View) classResult(class string, cpu int) (r api.ContainerCPUClass) {
	if v.Observed != nil {
		return api.ContainerCPUClass{Reason: "the agent writes nothing in mode observe"}
	}
	for _, f := range v.CPUClasses.Faults {
		if slices.Contains(f.CPUs, cpu) {
			return api.ContainerCPUClass{Reason: f.Reason}
		}
	}
	for _, actual := range v.CPUClasses.InForce {
		switch {
		case !slices.Contains(actual.CPUs, cpu):
		case actual.Class == class:
			return api.ContainerCPUClass{InForce: true, Kernel: strings.Join(actual.Files, ", ")}
		default:
			return api.ContainerCPUClass{Reason: "these CPUs have the class " + actual.Class + ", because CPUs of a balloon use the same cpufreq policy"}
		}
	}
	return api.ContainerCPUClass{Reason: "the class is not written yet"}
}
