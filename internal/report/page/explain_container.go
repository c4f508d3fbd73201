package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// Explainer returns the decisions about the containers of a pod, or about one of them, with the known facts.
type Explainer func(namespace, pod, container string) ([]api.Container, bool)

// explainContainer answers a question about a container, NAMESPACE/POD/CONTAINER/ID.
func explainContainer(which string, ask Explainer) (explanation, bool) {
	parts := strings.SplitN(which, "/", 4)
	if len(parts) != 4 {
		return explanation{}, false
	}
	found, _ := ask(parts[0], parts[1], parts[2])
	i := slices.IndexFunc(found, func(c api.Container) bool { return c.ID == parts[3] })
	if i < 0 && parts[3] != "" {
		return explanation{}, false
	}
	if i < 0 && len(found) == 1 {
		i = 0
	}
	if i < 0 {
		return explanation{}, false
	}
	return about(found[i]), true
}

func about(c api.Container) explanation {
	e := explanation{Title: term.Clean(strings.TrimSuffix("Container "+c.Pod+"/"+c.Name, "/")), Verdict: inForce(c)}
	class := "Class " + term.Clean(c.Class)
	if c.ClassFrom != "" {
		class += ", from " + term.Clean(c.ClassFrom)
	}
	e.About = []string{class + "; " + term.Clean(c.QoS) + " to Kubernetes; " + term.Clean(c.State) + "."}
	e.Tables = append(e.Tables, problems(c.Problems), values("Values of the container", c.Values), values("Values of its pod", c.PodValues), facts(c.Facts))
	e.Tables = slices.DeleteFunc(e.Tables, func(t table) bool { return len(t.Rows) == 0 })
	return e
}

// inForce explains whether a container's values are in force, and why it has these CPUs.
func inForce(c api.Container) verdict {
	missing := 0
	for _, v := range slices.Concat(c.Values, c.PodValues) {
		if !v.Applied {
			missing++
		}
	}
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
		v.Text = cpus + " The agent was " + api.ReleasedSince(c.ReleasedAt) + ": no decision about it is in force."
	case v.Good:
		v.Text = cpus + " Everything that was decided for it is in force."
	case missing > 0:
		v.Text = cpus + " " + strings.ToUpper(are(missing, "value")[:1]) + are(missing, "value")[1:] + " not in force."
	default:
		v.Text = cpus + " " + are(len(c.Problems), "problem") + " reported."
	}
	if c.SeatWhy != "" {
		v.Reasons = append(v.Reasons, term.Clean(c.SeatWhy))
	}
	return v
}

func problems(list []lifecycle.Problem) table {
	t := table{Caption: "Problems", Head: []string{"Kind", "Key", "Value", "Reason"}}
	for _, p := range list {
		t.Rows = append(t.Rows, []string{p.Kind(), term.Clean(p.Key), term.Clean(p.Value), term.Clean(p.Sentence())})
	}
	return t
}

func values(caption string, list []api.Value) table {
	t := table{Caption: caption, Head: []string{"In force", "Field", "Value", "Why"}}
	for _, v := range list {
		state := "yes"
		if !v.Applied {
			state = "NO"
		}
		if v.Note != "" {
			state += ": " + v.Note
		}
		why := v.Why.Hook
		if v.Why.Source != "" {
			why += " from " + v.Why.Source
		}
		if v.Why.Text != "" {
			why += ": " + v.Why.Text
		}
		t.Rows = append(t.Rows, []string{term.Clean(state), term.Clean(v.Field), term.Clean(v.Value), term.Clean(why)})
	}
	return t
}

func facts(list []api.Fact) table {
	t := table{Caption: "Facts", Head: []string{"Fact", "Value", "From"}}
	for _, f := range list {
		from := string(f.From)
		if f.Note != "" {
			from = fmt.Sprintf("%s: %s", from, f.Note)
		}
		t.Rows = append(t.Rows, []string{term.Clean(f.Name), term.Clean(f.Value), term.Clean(from)})
	}
	return t
}

// formatted formats a sorted list of CPUs.
func formatted(ids []int) string {
	slices.Sort(ids)
	return topology.FormatList(slices.Compact(ids))
}
