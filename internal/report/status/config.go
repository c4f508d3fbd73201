package status

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// ConfigSource is a Source that knows which document of the configuration sets each key. The server answers requests
// for the configuration only if its Source implements ConfigSource.
type ConfigSource interface {
	// Config returns the configuration in force, with the source of each key.
	Config() api.Configuration
}

// serveConfiguration answers with the configuration in force.
func serveConfiguration(w http.ResponseWriter, _ *http.Request, can ConfigSource) {
	writeJSON(w, http.StatusOK, can.Config())
}

// Config requests the configuration in force, with the source of each key.
func (c *Client) Config(ctx context.Context) (api.Configuration, error) {
	return fetch[api.Configuration](ctx, c, http.MethodGet, "config", nil, nil)
}

// RenderConfig prints each key with its value and its source.
func RenderConfig(w io.Writer, c api.Configuration) error {
	var b bytes.Buffer
	writeTable(&b, "KEY\tVALUE\tSOURCE", c.Keys, func(k api.Setting) []string {
		return []string{term.Clean(k.Key), term.Clean(k.Value), term.Clean(k.Source)}
	})
	return writeTrimmed(w, &b)
}
