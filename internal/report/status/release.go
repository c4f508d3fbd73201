package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Releaser is a Source that can give back what it changed. The server offers it
// where there is one.
type Releaser interface {
	Release(ctx context.Context) (api.Released, error)
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
func (c *Client) Release(ctx context.Context) (api.Released, error) {
	var out api.Released
	body, err := c.do(ctx, http.MethodPost, "release", nil)
	if err != nil {
		return out, err
	}
	defer body.Close()
	return out, decode(body, &out)
}

// RenderReleased prints what was given back and what was not.
func RenderReleased(w io.Writer, r api.Released) error {
	fmt.Fprintf(w, "%d values given back, %d left, %d failed, %d stale in the runtime\n", r.Given, len(r.Left), len(r.Failed), len(r.Stale))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, list := range []struct {
		what string
		kept []api.Kept
	}{{"LEFT", r.Left}, {"FAILED", r.Failed}, {"STALE", r.Stale}} {
		for _, k := range list.kept {
			where := k.Cgroup
			if list.what == "STALE" {
				where = cmp.Or(k.Owner, k.Cgroup)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", list.what, term.Clean(where), term.Clean(k.Setting), term.Clean(k.Why))
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
