package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Adopter is a Source that can report in advance what the agent would decide if it took over the node from another
// agent. The server answers requests for this report only if its Source implements Adopter.
type Adopter interface {
	// PlanAdoption returns the decisions that the agent would make if it took over from the agent in its parameter. It
	// does not change the agent's state. The error is ErrCannotAdopt if the agent cannot take over in its present state.
	PlanAdoption(from *lifecycle.FormerAgent) (api.Adoption, error)
}

// ErrCannotAdopt is the error of an agent that cannot take over in its present state.
var ErrCannotAdopt = errors.New("the agent cannot take over now")

// servePlanAdoption answers a request for the decisions after an adoption. The body of the request describes the agent
// from which this agent would take over, as JSON.
func servePlanAdoption(w http.ResponseWriter, r *http.Request, can Adopter) {
	var from lifecycle.FormerAgent
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPlanBytes)).Decode(&from); err != nil {
		writeJSON(w, http.StatusBadRequest, errorBody{"the request is not valid JSON: " + err.Error()})
		return
	}
	out, err := can.PlanAdoption(&from)
	code := http.StatusBadRequest
	if errors.Is(err, ErrCannotAdopt) {
		code = http.StatusConflict
	}
	reply(w, out, err, code)
}

// PlanAdoption requests the decisions that the agent would make if it took over from another agent now.
func (c *Client) PlanAdoption(ctx context.Context, from lifecycle.FormerAgent) (api.Adoption, error) {
	text, err := json.Marshal(from)
	if err != nil {
		return api.Adoption{}, err
	}
	return fetch[api.Adoption](ctx, c, http.MethodPost, "plan/adopt", nil, text)
}

// RenderAdoption writes a table of the running containers: the CPUs and memory nodes that each container has now, those
// that it would get from Trimtab, and why.
func RenderAdoption(w io.Writer, a api.Adoption) error {
	var b bytes.Buffer
	switch n := len(a.Containers); {
	case n == 0:
	case a.Moves == 0:
		fmt.Fprintf(&b, "all of %s keep the CPUs and memory nodes that %s has assigned to them\n\n", term.Count(n, "container"), a.From)
	default:
		fmt.Fprintf(&b, "%d of %s would get other CPUs or memory nodes\n\n", a.Moves, term.Count(n, "container"))
	}
	writeTable(&b, "POD\tCONTAINER\tCLASS\tHAS\tGETS\tVERDICT\tWHY", a.Containers, func(c api.Adopted) []string {
		has, gets, verdict := c.CPUsNow, c.CPUsAfter, "MOVE"
		if c.MemsNow != "" {
			has, gets = has+" mem "+c.MemsNow, gets+" mem "+orDash(c.MemsAfter)
		}
		if c.Unchanged {
			verdict = "KEEP"
		}
		return []string{term.Clean(c.Pod), orDash(c.Container), orDash(c.Class), orDash(has), orDash(gets), verdict, orDash(c.Why)}
	})
	if a.Applied {
		fmt.Fprintf(&b, "\nthe next start of the agent with mode: enforce takes over from %s (%s in its files): stop %[1]s first\n", a.From, term.Count(a.ContainersRead, "container"))
	}
	return writeTrimmed(w, &b)
}
