package status

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
)

// UsageSource is a Source that reads how much CPU time containers use. The server answers requests for usage only if
// its Source implements UsageSource.
type UsageSource interface {
	Usage() api.Usage
}

func serveUsage(w http.ResponseWriter, _ *http.Request, can UsageSource) {
	u := can.Usage()
	u.Containers = notNull(u.Containers)
	writeJSON(w, http.StatusOK, u)
}

// Usage asks how much CPU time the running containers have used.
func (c *Client) Usage(ctx context.Context) (api.Usage, error) {
	return ask[api.Usage](ctx, c, http.MethodGet, "usage", nil, nil)
}
