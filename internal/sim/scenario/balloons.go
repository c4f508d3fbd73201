package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Balloons are the balloons that the agent must report after a step. A balloon is a set of CPUs for some containers.
type Balloons struct {
	// From names the rule or the row of a table from which the wanted CPUs come. Messages contain this text.
	From string `json:"from"`
	// CPUs has the list of the CPUs of each wanted balloon, by the balloon's name, such as two-cpu[0]; "" for a balloon
	// without CPUs of its own. The part before the bracket is the balloon's type. If CPUs names a type, all other
	// balloons of this type are errors. A name without an index, such as two-cpu, means that no balloon of this type
	// may exist.
	CPUs map[string]string `json:"cpus"`
}

// Differences lists the differences between the existing balloons and the wanted balloons. existing has the CPU lists
// of all existing balloons, by name.
func (b *Balloons) Differences(existing map[string]string) (notes []string) {
	if b == nil {
		return nil
	}
	types := map[string]bool{}
	for name := range b.CPUs {
		kind, _, _ := strings.Cut(name, "[")
		types[kind] = true
	}
	for name, cpus := range existing {
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
		cpus, is := existing[name]
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
