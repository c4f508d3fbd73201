package status

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Difference is a setting whose value on the node differs from the decided value, or cannot be compared with it.
type Difference struct {
	Pod       string `json:"pod"`                 // namespace/name
	Container string `json:"container,omitempty"` // empty for a setting of the pod
	Setting   string `json:"setting"`             // the field of the value, such as cpu.shares
	Node      string `json:"node"`                // the value that the node has
	Trimtab   string `json:"trimtab"`             // the value that Trimtab would have set
	Why       string `json:"why,omitempty"`       // the hook that decided the value, and its source
}

// Observation is what `trimtab observe` prints.
type Observation struct {
	Compared    int          `json:"compared"` // the number of decided values that the agent compared with the node
	Differ      int          `json:"differ"`   // the number of these values that differ
	Differences []Difference `json:"differences"`
	// NotCompared has the values that no file of the node shows, such as environment variables.
	NotCompared []Difference `json:"notCompared,omitempty"`
}

// ObservationOf returns the differences between the values on a node and the decisions of its agent, which runs with
// mode: observe.
func ObservationOf(n api.Node) Observation {
	o := Observation{Differences: []Difference{}}
	if n.Observed != nil {
		o.Compared, o.Differ = n.Observed.Compared, n.Observed.Differ
	}
	seen := map[Difference]bool{}
	add := func(c api.Container, container string, values []api.Value) {
		for _, v := range values {
			d := Difference{c.Pod, container, v.Field, v.Kernel, v.Value, v.Why.HookAndSource()}
			switch {
			case v.Applied || v.Channel != "observe" || seen[d]:
			case v.Missing == api.Differs:
				o.Differences = append(o.Differences, d)
			case v.Missing == api.NotCompared:
				o.NotCompared = append(o.NotCompared, d)
			}
			seen[d] = true
		}
	}
	for _, c := range n.Containers {
		add(c, c.Name, c.Values)
		add(c, "", c.PodValues) // all containers of a pod have the same PodValues; add skips the repetitions
	}
	for _, list := range [][]Difference{o.Differences, o.NotCompared} {
		slices.SortFunc(list, func(a, b Difference) int {
			return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Setting, b.Setting))
		})
	}
	return o
}

// RenderObservation writes the differences as tables.
func RenderObservation(w io.Writer, o Observation) error {
	var b bytes.Buffer
	if len(o.Differences) == 0 {
		fmt.Fprintf(&b, "%s compared: none differs from what Trimtab would set\n", term.Count(o.Compared, "value"))
	} else {
		fmt.Fprintf(&b, "%d of %s differ\n\n", o.Differ, term.Count(o.Compared, "value"))
	}
	row := func(d Difference) []string {
		return []string{term.Clean(d.Pod), orDash(d.Container), orDash(d.Setting), orDash(d.Node), orDash(d.Trimtab), orDash(d.Why)}
	}
	writeTable(&b, "POD\tCONTAINER\tSETTING\tNODE\tTRIMTAB\tWHY", o.Differences, row)
	if len(o.NotCompared) > 0 {
		fmt.Fprintf(&b, "\n%s would be set when a container is created, and cannot be compared with the node\n", term.Count(len(o.NotCompared), "value"))
		writeTable(&b, "POD\tCONTAINER\tSETTING\tTRIMTAB\tWHY", o.NotCompared, func(d Difference) []string {
			r := row(d)
			return append(r[:3], r[4:]...)
		})
	}
	return writeTrimmed(w, &b)
}
