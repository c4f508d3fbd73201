package page

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// Explainer returns what the agent knows and has decided about all containers of a pod, or about one container. It
// returns false if the agent does not know the pod or container.
type Explainer func(namespace, pod, container string) ([]api.Container, bool)

// explainContainer answers a question about a container. The name has the form NAMESPACE/POD/CONTAINER/ID. ID may be
// empty if the pod has only one container of this name.
func explainContainer(name string, ask Explainer) (explanation, bool) {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) != 4 {
		return explanation{}, false
	}
	found, _ := ask(parts[0], parts[1], parts[2])
	i := slices.IndexFunc(found, func(c api.Container) bool { return c.ID == parts[3] })
	switch {
	case i >= 0:
		return explanationOf(found[i]), true
	case parts[3] == "" && len(found) == 1:
		return explanationOf(found[0]), true
	}
	return explanation{}, false
}

// explanationOf returns the explanation of a container.
func explanationOf(c api.Container) explanation {
	e := explanation{Title: term.Clean(strings.TrimSuffix("Container "+c.Pod+"/"+c.Name, "/")), Verdict: containerVerdict(c)}
	class := "Class " + term.Clean(c.Class)
	if c.ClassFrom != "" {
		class += ", from " + term.Clean(c.ClassFrom)
	}
	e.Remarks = []string{class + "; Kubernetes QoS class " + term.Clean(c.QoS) + "; state " + term.Clean(c.State) + "."}
	if c.Demotion != nil {
		e.Remarks = append(e.Remarks, "Memory: "+term.Clean(c.Demotion.Text())+".")
	}
	e.Tables = append(e.Tables, problemTable(c.Problems), cpuClassTable(c.CPUClasses), valueTable("Values of the container", c.Values), valueTable("Values of its pod", c.PodValues), factTable(c.Facts))
	e.Tables = slices.DeleteFunc(e.Tables, func(t table) bool { return len(t.Rows) == 0 })
	return e
}

// containerVerdict explains whether a container's values are in force, and why it has these CPUs.
func containerVerdict(c api.Container) verdict {
	missing := api.NotApplied(c.Values) + api.NotApplied(c.PodValues)
	cpus := "It runs on CPUs " + c.CPUs + " of pool " + term.Clean(c.CPUGroup) + "."
	switch {
	case c.CPUGroup == "exclusive":
		cpus = "It owns CPUs " + c.CPUs + "."
	case c.CPUs == "":
		cpus = "It has no CPUs: it does not run."
	}
	v := verdict{Good: missing+len(c.Problems) == 0 && c.ReleasedAt.IsZero()}
	switch {
	case !c.ReleasedAt.IsZero():
		v.Text = cpus + " The agent was " + api.ReleasedText(c.ReleasedAt) + ": no decision about the container is in force."
	case v.Good:
		v.Text = cpus + " All values that the agent decided for the container are in force."
	case missing > 0:
		v.Text = cpus + " " + countAre(missing, "value") + " not in force."
	default:
		v.Text = cpus + " " + countAre(len(c.Problems), "problem") + " reported."
	}
	if c.CPUGroupWhy != "" {
		v.Reasons = append(v.Reasons, term.Clean(c.CPUGroupWhy))
	}
	return v
}

// newTable returns a table with a row for each element of a list. It replaces unprintable characters in the cells.
func newTable[T any](caption string, head []string, list []T, row func(T) []string) table {
	t := table{Caption: caption, Head: head}
	for _, element := range list {
		cells := row(element)
		for i := range cells {
			cells[i] = term.Clean(cells[i])
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// problemTable returns a table of problems.
func problemTable(list []lifecycle.Problem) table {
	return newTable("Problems", []string{"Kind", "Key", "Value", "Reason"}, list, func(p lifecycle.Problem) []string {
		return []string{p.Kind(), p.Key, p.Value, p.Sentence()}
	})
}

// valueTable returns a table of decided values: whether each value is in force, and why it was decided.
func valueTable(caption string, list []api.Value) table {
	return newTable(caption, []string{"In force", "Field", "Value", "Why"}, list, func(v api.Value) []string {
		state := "yes"
		if !v.Applied {
			state = "NO"
		}
		if v.Note != "" {
			state += ": " + v.Note
		}
		why := v.Why.HookAndSource()
		if v.Why.Text != "" {
			why += ": " + v.Why.Text
		}
		return []string{state, v.Field, v.Value, why}
	})
}

// cpuClassTable returns a table of the CPU classes of a container's CPUs.
func cpuClassTable(list []api.ContainerCPUClass) table {
	return newTable("Classes of its CPUs", []string{"In force", "CPUs", "Class", "Balloon type", "Kernel"}, list, func(c api.ContainerCPUClass) []string {
		state := "yes"
		switch {
		case c.Class == "":
			return []string{"-", c.CPUs, "none", "-", "the kernel's own values"}
		case !c.InForce:
			state = "NO: " + c.Reason
		}
		return []string{state, c.CPUs, c.Class, cmp.Or(c.BalloonType, "none: no balloon has these CPUs"), c.Kernel}
	})
}

// factTable returns a table of the facts on which the decisions about a container are based.
func factTable(list []api.Fact) table {
	return newTable("Facts", []string{"Fact", "Value", "From"}, list, func(f api.Fact) []string {
		return []string{f.Name, f.Value, strings.TrimSuffix(string(f.From)+": "+f.Note, ": ")}
	})
}

// formatCPUs sorts CPUs, removes duplicates, and formats them as a kernel list.
func formatCPUs(ids []int) string {
	slices.Sort(ids)
	return topology.FormatList(slices.Compact(ids))
}
