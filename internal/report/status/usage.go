package status

import (
	"context"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
)

// UsageSource is a Source that reads how much CPU time containers have used. The server answers requests for the usage
// only if its Source implements UsageSource.
type UsageSource interface {
	// Usage returns the CPU time that the running containers have used.
	Usage() api.Usage
}

// serveUsage answers with the CPU time that the running containers have used.
func serveUsage(w http.ResponseWriter, _ *http.Request, can UsageSource) {
	u := can.Usage()
	u.Containers = notNull(u.Containers)
	writeJSON(w, http.StatusOK, u)
}

// Usage requests the CPU time that the running containers have used.
func (c *Client) Usage(ctx context.Context) (api.Usage, error) {
	return fetch[api.Usage](ctx, c, http.MethodGet, "usage", nil, nil)
}
