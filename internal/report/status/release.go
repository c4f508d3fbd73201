package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
)

// Released is what became of everything that was given back.
type Released struct {
	// Given counts values that are as they were before Trimtab.
	Given int `json:"given"`
	// Left are values that stay, as somebody else changed them since.
	Left []Kept `json:"left,omitempty"`
	// Failed are values that could not be restored: the kernel refused, or nobody
	// knows what was there before.
	Failed []Kept `json:"failed,omitempty"`
	// Stale are values that the runtime's stored copies have still: the next update
	// of the container by the kubelet would bring them back. Kernel is what is in
	// the copy.
	Stale []Kept `json:"stale,omitempty"`
	// Waiting counts containers whose copy in the runtime was still to be changed
	// when the time for it was over.
	Waiting int `json:"waiting,omitempty"`
}

// Unrestored counts what is not as it was, but for what others changed.
func (r *Released) Unrestored() int { return len(r.Failed) + max(len(r.Stale), r.Waiting) }

// Kept is a value that was not given back, and why.
type Kept struct {
	Owner   string `json:"owner,omitempty"` // container or sandbox id
	Cgroup  string `json:"cgroup"`
	Setting string `json:"setting"`
	Kernel  string `json:"kernel,omitempty"` // what is there
	Why     string `json:"why"`
}

// Releaser is a Source that can give back what it changed. The server offers it
// where there is one.
type Releaser interface {
	Release(ctx context.Context) (Released, error)
}

func release(w http.ResponseWriter, r *http.Request, src Source) {
	can, ok := src.(Releaser)
	if !ok {
		answer(w, http.StatusNotFound, failure{"this agent cannot release"})
		return
	}
	out, err := can.Release(r.Context())
	if err != nil {
		answer(w, http.StatusInternalServerError, failure{err.Error()})
		return
	}
	answer(w, http.StatusOK, out)
}

// Release has the agent give back everything it changed; it decides nothing
// more until it is started anew.
func (c *Client) Release(ctx context.Context) (Released, error) {
	var out Released
	body, err := c.do(ctx, http.MethodPost, "release", nil)
	if err != nil {
		return out, err
	}
	defer body.Close()
	return out, decode(body, &out)
}

// RenderReleased prints what was given back and what was not.
func RenderReleased(w io.Writer, r Released) error {
	fmt.Fprintf(w, "%d values given back, %d left, %d failed, %d stale in the runtime\n", r.Given, len(r.Left), len(r.Failed), len(r.Stale))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, list := range []struct {
		what string
		kept []Kept
	}{{"LEFT", r.Left}, {"FAILED", r.Failed}, {"STALE", r.Stale}} {
		for _, k := range list.kept {
			where := k.Cgroup
			if list.what == "STALE" {
				where = cmp.Or(k.Owner, k.Cgroup)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", list.what, Clean(where), Clean(k.Setting), Clean(k.Why))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Waiting > 0 {
		fmt.Fprintf(w, "%d containers have our values in the runtime's stored copy still: release again once the runtime answers\n", r.Waiting)
	}
	if len(r.Stale) > 0 {
		fmt.Fprintln(w, "STALE values are in the runtime's stored copy of the container: an update by the kubelet may write them again, until the container ends")
	}
	return nil
}
