package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Releaser is a Source that can restore what it changed. The server offers this if the Source supports it.
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
	reply(w, out, err, http.StatusInternalServerError)
}

// Release makes the agent restore everything that it changed. The agent then decides nothing until someone starts
// it again.
func (c *Client) Release(ctx context.Context) (api.Released, error) {
	return ask[api.Released](ctx, c, http.MethodPost, "release", nil, nil)
}

// RenderReleased prints what was restored and what was not.
func RenderReleased(w io.Writer, r api.Released) error {
	if r.Nothing {
		_, err := fmt.Fprintln(w, "nothing to restore: no agent answers, and there is no state directory (paths.state) and no key (paths.key), so none has run on this node")
		return err
	}
	given := fmt.Sprintf("%d values restored", r.Given)
	if r.Again {
		given = fmt.Sprintf("released before, and tried again: %d values have their original value", r.Given)
	}
	if r.Given+len(r.Left)+len(r.Failed)+len(r.Stale) == 0 {
		fmt.Fprintln(w, "nothing was left to restore")
	} else {
		fmt.Fprintf(w, "%s, %d left, %d failed, %d stale in the runtime\n", given, len(r.Left), len(r.Failed), len(r.Stale))
	}
	t := table(w)
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
		fmt.Fprintf(w, "%d containers still have the agent's values in the runtime's stored copy: release again when the runtime answers\n", r.Waiting)
	}
	if r.Cluster != "" {
		fmt.Fprintf(w, "left at the API server: %s; the agent tries again while it runs\n", term.Clean(r.Cluster))
	}
	if len(r.Stale) > 0 {
		fmt.Fprintln(w, "STALE values are in the runtime's stored copy of the container: an update by the kubelet may write them again, until the container ends")
	}
	return nil
}
