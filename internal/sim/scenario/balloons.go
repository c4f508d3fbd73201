package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Balloons are the wanted balloons, which are compared with the agent's report.
type Balloons struct {
	// From is the source of the numbers: the row of a table, or a rule.
	From string `json:"from"`
	// CPUs has the CPUs of balloons by name, such as two-cpu[0], as lists; "" for a balloon without CPUs of its own. A
	// type that is named must have only these balloons. A name without an index, such as two-cpu, means that the type
	// must have no balloon.
	CPUs map[string]string `json:"cpus"`
}

// Differences lists the differences between the existing balloons and the wanted ones. got has the CPUs of all existing
// balloons by name, as lists.
func (b *Balloons) Differences(got map[string]string) (notes []string) {
	if b == nil {
		return nil
	}
	types := map[string]bool{}
	for name := range b.CPUs {
		kind, _, _ := strings.Cut(name, "[")
		types[kind] = true
	}
	for name, cpus := range got {
		if kind, _, _ := strings.Cut(name, "["); types[kind] {
			if _, wanted := b.CPUs[name]; !wanted {
				notes = append(notes, fmt.Sprintf("there is a balloon %s with CPUs %q, wanted none [%s]", name, cpus, b.From))
			}
		}
	}
	for name, want := range b.CPUs {
		if !strings.Contains(name, "[") {
			continue
		}
		cpus, is := got[name]
		a, errA := topology.ParseList(cpus)
		w, errW := topology.ParseList(want)
		if !is {
			notes = append(notes, fmt.Sprintf("there is no balloon %s, wanted CPUs %q [%s]", name, want, b.From))
		} else if errA != nil || errW != nil || !slices.Equal(a, w) {
			notes = append(notes, fmt.Sprintf("balloon %s has CPUs %q, wanted %q [%s]", name, cpus, want, b.From))
		}
	}
	slices.Sort(notes)
	return notes
}
