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

// Planner is a Source that can report the effect of new pods or of another configuration in advance. The server
// answers requests for a plan only if its Source implements Planner.
type Planner interface {
	// PlanPods returns the effect of creating the pods in manifests. It returns an error if the manifests are invalid.
	PlanPods(manifests []byte) (api.Plan, error)
	// PlanConfig returns the effect of a configuration file. It returns an error if the file is invalid.
	PlanConfig(file []byte) (api.Plan, error)
}

// maxPlanBytes is the largest body of a request for a plan.
const maxPlanBytes = 8 << 20

// servePlan answers a request with the plan that makePlan returns for the body of the request.
func servePlan(w http.ResponseWriter, r *http.Request, makePlan func(body []byte) (api.Plan, error)) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlanBytes))
	if err != nil {
		writeJSON(w, http.StatusRequestEntityTooLarge, errorBody{"the request is too large or incomplete: " + err.Error()})
		return
	}
	out, err := makePlan(text)
	reply(w, out, err, http.StatusBadRequest)
}

// PlanPods requests the effect of the pods in manifests.
func (c *Client) PlanPods(ctx context.Context, manifests []byte) (api.Plan, error) {
	return fetch[api.Plan](ctx, c, http.MethodPost, "plan/pods", nil, manifests)
}

// PlanConfig requests the effect of another configuration on running containers.
func (c *Client) PlanConfig(ctx context.Context, file []byte) (api.Plan, error) {
	return fetch[api.Plan](ctx, c, http.MethodPost, "plan/config", nil, file)
}

// RenderPlan writes a plan. It begins with the containers that would be refused, and with those that would have
// problems.
func RenderPlan(w io.Writer, out api.Plan) error {
	var b bytes.Buffer
	if !out.ReleasedAt.IsZero() {
		fmt.Fprintf(&b, "the agent was %s, and decides nothing until it is restarted\n", api.ReleasedText(out.ReleasedAt))
		if len(out.Containers) > 0 {
			fmt.Fprintf(&b, "until the restart, pods get what is shown here; 'trimtab plan --node NODE --config FILE' shows what they would get after the restart\n")
		} else {
			fmt.Fprintf(&b, "after a restart with this configuration:\n")
		}
		fmt.Fprintln(&b)
	}
	writePlanProblems(&b, out)
	writeTable(&b, "POD\tCONTAINER\tCLASS\tQOS\tCPU GROUP\tCPUS\tWHY", out.Containers, func(c api.Container) []string {
		return []string{term.Clean(c.Pod), orDash(c.Name), orDash(c.Class), orDash(c.QoS), orDash(c.CPUGroup), orDash(c.CPUs), orDash(c.CPUGroupWhy)}
	})
	writePlanValues(&b, out.Containers)
	for _, hint := range out.Hints {
		fmt.Fprintf(&b, "\nhint: %s\n", term.Clean(hint))
	}
	if len(out.IgnoredObjects) > 0 {
		fmt.Fprintf(&b, "\nignored, because they have no pods: %s\n", term.Clean(strings.Join(out.IgnoredObjects, ", ")))
	}
	switch {
	case len(out.Moves)+len(out.Changes) == 0:
		fmt.Fprint(&b, "\nno running container would get other CPUs or values\n")
	case len(out.Moves) == 0:
		fmt.Fprint(&b, "\nno running container would get other CPUs\n")
	default:
		fmt.Fprintf(&b, "\n%s would get other CPUs:\n", term.Count(len(out.Moves), "running container"))
		writeTable(&b, "POD\tCONTAINER\tNOW\tTHEN", out.Moves, func(m api.Move) []string {
			return []string{term.Clean(m.Pod), orDash(m.Container), orDash(m.Before), orDash(m.After)}
		})
	}
	if len(out.NeedRecreation) > 0 {
		fmt.Fprintf(&b, "\nthese containers can get CPUs of their own when they are created again, if enough CPUs are free: %s\n", term.Clean(strings.Join(out.NeedRecreation, ", ")))
	}
	writeChanges(&b, out.Changes)
	fmt.Fprint(&b, "\nCPUs then\n")
	cpumap.New(out.CPUs).Text(&b, out.CPUs)
	if slices.ContainsFunc(out.CPUs.Pools, func(p api.Pool) bool { return strings.Contains(p.Name, " ") }) {
		writePoolTable(&b, out.CPUs.Pools) // the map shows several of these pools by the same mark
	}
	return writeTrimmed(w, &b)
}

// maxNamedContainers is the largest number of containers that the line of a change names.
const maxNamedContainers = 3

// writeChanges writes a table of changes. Containers with the same change share one row, which names only the first
// maxNamedContainers of them. Equal changes must be next to each other in the parameter changes.
func writeChanges(b *bytes.Buffer, changes []api.Change) {
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s besides CPUs would change:\n", term.Count(len(changes), "decision"))
	var rows [][]string
	for len(changes) > 0 {
		first := changes[0]
		n := slices.IndexFunc(changes, func(c api.Change) bool {
			return c.Setting != first.Setting || c.Before != first.Before || c.After != first.After
		})
		if n < 0 {
			n = len(changes)
		}
		var names []string
		for _, c := range changes[:min(n, maxNamedContainers)] {
			names = append(names, ownerName(c.Pod, c.Container))
		}
		if more := n - len(names); more > 0 {
			names = append(names, fmt.Sprintf("and %d more", more))
		}
		rows = append(rows, []string{term.Clean(first.Setting), orDash(first.Before), orDash(first.After), strings.Join(names, ", ")})
		changes = changes[n:]
	}
	writeTable(b, "SETTING\tNOW\tTHEN\tCONTAINERS", rows, func(row []string) []string { return row })
}

// writePlanProblems writes a line for each container that would be refused, and for each container that has a problem.
func writePlanProblems(b *bytes.Buffer, out api.Plan) {
	for _, r := range out.Rejected {
		fmt.Fprintf(b, "refused: %s: %s\n", ownerName(r.Pod, r.Container), term.Clean(r.Reason))
	}
	for _, c := range out.Containers {
		if len(c.Problems) == 0 {
			continue
		}
		more := ""
		if n := len(c.Problems) - 1; n > 0 {
			more = fmt.Sprintf(" (and %s below)", term.Count(n, "more problem"))
		}
		fmt.Fprintf(b, "not as requested: %s: %s%s\n", ownerName(c.Pod, c.Name), term.Clean(c.Problems[0].Reason), more)
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
}

// ownerName formats the name of a container, or of a pod if container is "".
func ownerName(pod, container string) string {
	return term.Clean(strings.TrimSuffix(pod+"/"+container, "/"))
}

// writePlanValues lists, for each container, the values that would be decided besides the CPUs, and the problems of the
// container's requests.
func writePlanValues(w io.Writer, all []api.Container) {
	for _, c := range all {
		var lines []string
		for _, v := range withPodValues(c) {
			lines = append(lines, fmt.Sprintf("  %s = %s (%s)", term.Clean(v.Field), term.Clean(v.Value), term.Clean(v.Why.Hook)))
		}
		for _, p := range c.Problems {
			lines = append(lines, fmt.Sprintf("  problem: %s: %s", term.Clean(p.Key), term.Clean(p.Reason)))
		}
		if len(lines) > 0 {
			fmt.Fprintf(w, "\n%s %s\n%s\n", term.Clean(c.Pod), term.Clean(c.Name), strings.Join(lines, "\n"))
		}
	}
}
