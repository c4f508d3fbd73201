package status

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Planner is a Source that can report the effect of a change in advance. The server offers this if the Source
// supports it.
type Planner interface {
	// PlanPods takes manifests, and PlanConfig a configuration file. Errors are about these.
	PlanPods(manifests []byte) (api.Plan, error)
	PlanConfig(file []byte) (api.Plan, error)
}

// maxPlanBytes is how large a question may be.
const maxPlanBytes = 8 << 20

// plan answers a question whose text is the request's body.
func plan(w http.ResponseWriter, r *http.Request, ask func([]byte) (api.Plan, error)) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlanBytes))
	if err != nil {
		answer(w, http.StatusRequestEntityTooLarge, failure{"the question is too large or incomplete: " + err.Error()})
		return
	}
	out, err := ask(text)
	reply(w, out, err, http.StatusBadRequest)
}

func plans(mux *http.ServeMux, src Source) {
	p, ok := src.(Planner)
	if !ok {
		return
	}
	mux.HandleFunc("POST /v1/plan/pods", func(w http.ResponseWriter, r *http.Request) { plan(w, r, p.PlanPods) })
	mux.HandleFunc("POST /v1/plan/config", func(w http.ResponseWriter, r *http.Request) { plan(w, r, p.PlanConfig) })
}

// PlanPods asks for the effect of pods, given as manifests.
func (c *Client) PlanPods(ctx context.Context, manifests []byte) (api.Plan, error) {
	return ask[api.Plan](ctx, c, http.MethodPost, "plan/pods", nil, manifests)
}

// PlanConfig asks which containers another configuration would move.
func (c *Client) PlanConfig(ctx context.Context, file []byte) (api.Plan, error) {
	return ask[api.Plan](ctx, c, http.MethodPost, "plan/config", nil, file)
}

// RenderOutlook writes the result of a plan: first what would be refused, and what would not be as requested.
func RenderOutlook(w io.Writer, out api.Plan) error {
	var b bytes.Buffer
	if !out.ReleasedAt.IsZero() {
		fmt.Fprintf(&b, "the agent was %s, and decides nothing until it is restarted\n", api.ReleasedSince(out.ReleasedAt))
		if len(out.Containers) > 0 {
			fmt.Fprintf(&b, "until then pods get what is shown here; 'trimtab plan --node NODE --config FILE' shows what they would get after it\n")
		} else {
			fmt.Fprintf(&b, "after a restart with this configuration:\n")
		}
		fmt.Fprintln(&b)
	}
	verdicts(&b, out)
	columns(&b, "POD\tCONTAINER\tCLASS\tQOS\tSEAT\tCPUS\tWHY", out.Containers, func(c api.Container) []string {
		return []string{term.Clean(c.Pod), dash(c.Name), dash(c.Class), dash(c.QoS), dash(c.CPUGroup), dash(c.CPUs), dash(c.SeatWhy)}
	})
	values(&b, out.Containers)
	for _, hint := range out.Hints {
		fmt.Fprintf(&b, "\nhint: %s\n", term.Clean(hint))
	}
	if len(out.PassedOver) > 0 {
		fmt.Fprintf(&b, "\nignored, because they have no pods: %s\n", term.Clean(strings.Join(out.PassedOver, ", ")))
	}
	switch {
	case len(out.Moves)+len(out.Changes) == 0:
		fmt.Fprint(&b, "\nno running container would get other CPUs or values\n")
	case len(out.Moves) == 0:
		fmt.Fprint(&b, "\nno running container would get other CPUs\n")
	default:
		fmt.Fprintf(&b, "\n%s would get other CPUs:\n", term.Count(len(out.Moves), "running container"))
		columns(&b, "POD\tCONTAINER\tNOW\tTHEN", out.Moves, func(m api.Move) []string {
			return []string{term.Clean(m.Pod), dash(m.Container), dash(m.Before), dash(m.After)}
		})
	}
	if len(out.CreateAgain) > 0 {
		fmt.Fprintf(&b, "\ncan get CPUs of their own when they are created again, if enough are free: %s\n", term.Clean(strings.Join(out.CreateAgain, ", ")))
	}
	changes(&b, out.Changes)
	fmt.Fprint(&b, "\nCPUs then\n")
	cpumap.New(out.CPUs).Text(&b, out.CPUs)
	if slices.ContainsFunc(out.CPUs.Pools, func(p api.Pool) bool { return strings.Contains(p.Name, " ") }) {
		pools(&b, out.CPUs.Pools) // parts of the node that the map does not distinguish
	}
	return send(w, &b)
}

// maxSameChange is how many containers are named whose decision would change in the same way.
const maxSameChange = 3

// changes writes a line for each kind of change, with the first containers that it concerns.
func changes(b *bytes.Buffer, all []api.Change) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s besides CPUs would change:\n", term.Count(len(all), "decision"))
	var rows [][]string
	for len(all) > 0 {
		first := all[0]
		n := slices.IndexFunc(all, func(c api.Change) bool {
			return c.Setting != first.Setting || c.Before != first.Before || c.After != first.After
		})
		if n < 0 {
			n = len(all)
		}
		var names []string
		for _, c := range all[:min(n, maxSameChange)] {
			names = append(names, named(c.Pod, c.Container))
		}
		if more := n - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		rows = append(rows, []string{term.Clean(first.Setting), dash(first.Before), dash(first.After), strings.Join(names, ", ")})
		all = all[n:]
	}
	columns(b, "SETTING\tNOW\tTHEN\tCONTAINERS", rows, func(row []string) []string { return row })
}

// verdicts writes a line for each container that would be refused, and for each that has a problem.
func verdicts(b *bytes.Buffer, out api.Plan) {
	for _, r := range out.Rejected {
		fmt.Fprintf(b, "refused: %s: %s\n", named(r.Pod, r.Container), term.Clean(r.Reason))
	}
	for _, c := range out.Containers {
		if len(c.Problems) == 0 {
			continue
		}
		more := ""
		if n := len(c.Problems) - 1; n > 0 {
			more = fmt.Sprintf(" (and %s below)", term.Count(n, "more problem"))
		}
		fmt.Fprintf(b, "not as requested: %s: %s%s\n", named(c.Pod, c.Name), term.Clean(c.Problems[0].Reason), more)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
}

// named names a container, or a pod if container is "".
func named(pod, container string) string {
	return term.Clean(strings.TrimSuffix(pod+"/"+container, "/"))
}

// values lists what would be decided for each container besides its CPUs, and the problems of its requests.
func values(w io.Writer, all []api.Container) {
	for _, c := range all {
		var said []string
		for _, v := range c.Values {
			said = append(said, fmt.Sprintf("  %s = %s (%s)", term.Clean(v.Field), term.Clean(v.Value), term.Clean(v.Why.Hook)))
		}
		for _, v := range c.PodValues {
			said = append(said, fmt.Sprintf("  pod %s = %s (%s)", term.Clean(v.Field), term.Clean(v.Value), term.Clean(v.Why.Hook)))
		}
		for _, p := range c.Problems {
			said = append(said, fmt.Sprintf("  problem: %s: %s", term.Clean(p.Key), term.Clean(p.Reason)))
		}
		if len(said) > 0 {
			fmt.Fprintf(w, "\n%s %s\n%s\n", term.Clean(c.Pod), term.Clean(c.Name), strings.Join(said, "\n"))
		}
	}
}
