package cpuclass

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// WantedClass is the class that some CPUs should have.
type WantedClass struct {
	Class lifecycle.CPUClass
	CPUs  []int // the numbers of the CPUs
	// Idle means that the CPUs belong to no balloon (a group of CPUs of the policy balloons). If CPUs of a balloon have
	// the same cpufreq policy as an idle CPU, the idle CPU gets the class of the balloon.
	Idle bool
}

// policy is a group of CPUs whose frequency the kernel sets together.
type policy struct {
	dir  string // relative to the root of the FS; "" in a unit that is one CPU without a cpufreq policy
	cpus []int  // the CPUs that are online
}

// policiesDir has a directory for each policy. The directory cpuN/cpufreq of a CPU is a link to the directory of the
// CPU's policy.
const policiesDir = "cpufreq"

// policiesOf reads the kernel's cpufreq policies. It leaves out policies without online CPUs, which
// accept no writes. Without cpufreq, it returns none.
func policiesOf(files FS) (all []policy) {
	names, _ := files.List(policiesDir) // if List fails, whyNoPolicy returns the error later
	for _, name := range names {
		if !strings.HasPrefix(name, "policy") {
			continue
		}
		p := policy{dir: path.Join(policiesDir, name)}
		list, _ := files.Read(path.Join(p.dir, "affected_cpus"))
		for _, text := range strings.Fields(list) {
			if cpu, err := strconv.Atoi(text); err == nil {
				p.cpus = append(p.cpus, cpu)
			}
		}
		if len(p.cpus) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// unit is a group of CPUs that get the same class: the CPUs of a cpufreq policy, or one CPU without a
// policy.
type unit struct {
	policy

	class *lifecycle.CPUClass // nil for none
	fault string              // the reason why the unit cannot have a class; "" for none
}

// key identifies a unit by its first CPU.
func (u *unit) key() int { return u.cpus[0] }

// fingerprint returns a text that changes if the CPUs or the class of the unit change.
func (u *unit) fingerprint() string {
	if u.class == nil {
		return fmt.Sprint(u.cpus)
	}
	return fmt.Sprint(u.cpus, *u.class)
}

// unitsOf groups CPUs into units by their cpufreq policies. It includes the CPUs that should have a class, and the CPUs
// of the files in written, which the writer changed earlier.
func unitsOf(policies []policy, want []WantedClass, written []string) []unit {
	of, needed, dirs := map[int]*WantedClass{}, map[int]bool{}, map[string]bool{}
	for i := range want {
		for _, cpu := range want[i].CPUs {
			of[cpu], needed[cpu] = &want[i], true
		}
	}
	for _, file := range written {
		if cpu, is := cpuOf(file); is {
			needed[cpu] = true
		} else {
			dirs[path.Dir(file)] = true
		}
	}
	var units []unit
	for _, p := range policies {
		has := dirs[p.dir]
		for _, cpu := range p.cpus {
			has = has || needed[cpu]
			delete(needed, cpu)
		}
		if has {
			units = append(units, unit{policy: p})
		}
	}
	for cpu := range needed {
		units = append(units, unit{policy: policy{cpus: []int{cpu}}})
	}
	for i := range units {
		units[i].chooseClass(of)
	}
	slices.SortFunc(units, func(a, b unit) int { return cmp.Compare(a.key(), b.key()) })
	return units
}

// chooseClass chooses the class of a unit. The class of a balloon has precedence over the class of idle CPUs.
func (u *unit) chooseClass(of map[int]*WantedClass) {
	for _, idle := range []bool{false, true} {
		for _, cpu := range u.cpus {
			w := of[cpu]
			switch {
			case w == nil || w.Idle != idle:
			case u.class == nil:
				u.class = &w.Class
			case u.class.Name != w.Class.Name:
				u.fault = fmt.Sprintf("CPUs %s share one cpufreq policy, so they cannot have the classes %s and %s at the same time", topology.FormatList(u.cpus), u.class.Name, w.Class.Name)
			}
		}
		if u.class != nil {
			return
		}
	}
}

// ownsFile reports whether a file belongs to the unit.
func (u *unit) ownsFile(file string) bool {
	cpu, is := cpuOf(file)
	return is && slices.Contains(u.cpus, cpu) || path.Dir(file) == u.dir
}

// cpuOf returns the CPU of a file such as cpu3/cpuidle/state1/disable.
func cpuOf(file string) (cpu int, is bool) {
	dir, _, _ := strings.Cut(file, "/")
	cpu, err := strconv.Atoi(strings.TrimPrefix(dir, "cpu"))
	return cpu, err == nil
}
