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

// ReleaseSource is a Source that can restore the values that it changed. The server answers requests for a release only
// if its Source implements ReleaseSource.
type ReleaseSource interface {
	// Release restores every value that the agent changed. The agent then decides nothing until it is restarted.
	Release(ctx context.Context) (api.Released, error)
}

// serveRelease answers a request to restore the values.
func serveRelease(w http.ResponseWriter, r *http.Request, can ReleaseSource) {
	out, err := can.Release(r.Context())
	reply(w, out, err, http.StatusInternalServerError)
}

// Release makes the agent restore every value that it changed. The agent then decides nothing until it is restarted.
func (c *Client) Release(ctx context.Context) (api.Released, error) {
	return fetch[api.Released](ctx, c, http.MethodPost, "release", nil, nil)
}

// RenderReleased prints how many values were restored, and the values that were not restored.
func RenderReleased(w io.Writer, r api.Released) error {
	if r.NeverRan {
		_, err := fmt.Fprintln(w, "nothing to restore: no agent answers, and there is no state directory (paths.state) and no key (paths.key), so no agent has run on this node")
		return err
	}
	restored := fmt.Sprintf("%d values restored", r.Restored)
	if r.AlreadyReleased {
		restored = fmt.Sprintf("the agent was already released; after another try, %d values have their original value", r.Restored)
	}
	if r.Restored+len(r.LeftToOthers)+len(r.Failed)+len(r.Stale) == 0 {
		fmt.Fprintln(w, "nothing was left to restore")
	} else {
		fmt.Fprintf(w, "%s, %d left to other programs, %d failed, %d stale in the runtime\n", restored, len(r.LeftToOthers), len(r.Failed), len(r.Stale))
	}
	t := newTableWriter(w)
	for _, list := range []struct {
		result string
		values []api.NotRestored
	}{{"LEFT", r.LeftToOthers}, {"FAILED", r.Failed}, {"STALE", r.Stale}} {
		for _, v := range list.values {
			where := v.Cgroup
			if list.result == "STALE" {
				where = cmp.Or(v.Owner, v.Cgroup)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", list.result, term.Clean(where), term.Clean(v.Setting), term.Clean(v.Why))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.PendingCopies > 0 {
		fmt.Fprintf(w, "for %d containers, the runtime still stores the agent's values: run 'trimtab release' again when the runtime answers\n", r.PendingCopies)
	}
	if r.Cluster != "" {
		fmt.Fprintf(w, "not removed from the API server: %s; the agent tries again while it runs\n", term.Clean(r.Cluster))
	}
	if len(r.Stale) > 0 {
		fmt.Fprintln(w, "STALE: the runtime still stores these values of Trimtab; until the container ends, an update by the kubelet can write them again")
	}
	return nil
}
