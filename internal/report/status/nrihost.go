package status

import (
	"fmt"
	"io"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// nriHost writes the state of the host of NRI plugins, and a line for each plugin.
func nriHost(head io.Writer, h *api.NRIHost, o Options) {
	if h == nil {
		return
	}
	if h.Flow == "" {
		fmt.Fprintf(head, "nri host\t%s\n", o.alarm(term.Clean("no plugins are served: "+h.Error)))
	} else {
		fmt.Fprintf(head, "nri host\t%s\n", term.Clean(h.Socket+", containers are "+h.Flow))
	}
	for _, p := range h.Plugins {
		state := term.Clean(p.Name + ": " + p.State())
		if p.Error != "" {
			state = o.alarm(state)
		}
		fmt.Fprintf(head, "\t%s\n", state)
	}
	if h.Turned > 0 {
		fmt.Fprintf(head, "\t%d clients rejected\n", h.Turned)
	}
}
