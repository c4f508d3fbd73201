package status

import (
	"fmt"
	"io"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// resourcePlugins prints the resource plugins, and the last registration that the agent refused.
func resourcePlugins(head io.Writer, r *api.ResourcePlugins, o Options) {
	if r == nil {
		return
	}
	label := "resource plugins"
	line := func(text string, alarm bool) {
		if text = term.Clean(text); alarm {
			text = o.alarm(text)
		}
		fmt.Fprintf(head, "%s\t%s\n", label, text)
		label = ""
	}
	if r.Error != "" {
		line("none can register: "+r.Error, true)
	}
	for _, p := range r.Plugins {
		line(p.Resource+": "+p.State(), p.Error != "")
	}
	if n := len(r.Refused); n > 0 {
		last := r.Refused[n-1]
		line(fmt.Sprintf("refused: %s: %s", last.Resource, last.Reason), true)
	}
	if label != "" {
		line("none has registered", false)
	}
}
