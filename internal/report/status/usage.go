package status

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
)

// Measured is a Source that reads how much CPU time containers use. The server offers this if the Source supports it.
type Measured interface {
	Usage() api.Usage
}

func usage(w http.ResponseWriter, src Source) {
	can, ok := src.(Measured)
	if !ok {
		answer(w, http.StatusNotFound, failure{"this agent does not report how much CPU time containers use"})
		return
	}
	u := can.Usage()
	u.Containers = list(u.Containers)
	answer(w, http.StatusOK, u)
}

// Usage asks how much CPU time the running containers have used.
func (c *Client) Usage(ctx context.Context) (api.Usage, error) {
	return ask[api.Usage](ctx, c, http.MethodGet, "usage", nil, nil)
}
