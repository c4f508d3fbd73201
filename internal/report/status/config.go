package status

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// Configured is a Source that knows the source of each key of its configuration. The server offers this if the
// Source supports it.
type Configured interface {
	Config() api.Configuration
}

func configuration(w http.ResponseWriter, src Source) {
	can, ok := src.(Configured)
	if !ok {
		answer(w, http.StatusNotFound, failure{"this agent does not report the sources of its configuration"})
		return
	}
	answer(w, http.StatusOK, can.Config())
}

// Config asks for the configuration in force, with the source of each key.
func (c *Client) Config(ctx context.Context) (api.Configuration, error) {
	return ask[api.Configuration](ctx, c, http.MethodGet, "config", nil, nil)
}

// RenderConfig prints each key with its value and its source.
func RenderConfig(w io.Writer, c api.Configuration) error {
	var b bytes.Buffer
	t := table(&b)
	fmt.Fprintln(t, "KEY\tVALUE\tSOURCE")
	for _, k := range c.Keys {
		fmt.Fprintf(t, "%s\t%s\t%s\n", term.Clean(k.Key), term.Clean(k.Value), term.Clean(k.Source))
	}
	flush(t)
	return send(w, &b)
}
