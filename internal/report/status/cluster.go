package status

import (
	"fmt"
	"io"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// cluster prints the state of the API server's services.
func cluster(head io.Writer, c *api.Cluster, o Options) {
	if c == nil {
		return
	}
	server := "never reached"
	if !c.Reached.IsZero() {
		server = "reached " + age(o.Now.Sub(c.Reached)) + " ago"
	}
	if c.Server != "" {
		server = term.Clean(c.Server) + ", " + server
	}
	if c.Node != "" {
		server += ", node " + term.Clean(c.Node)
	}
	if c.Error != "" {
		server = o.alarm(server + ": " + term.Clean(c.Error))
	}
	fmt.Fprintf(head, "API server\t%s\n", server)
	for _, p := range c.Parts {
		told := term.Clean(p.Name + ": " + p.Text())
		if p.Error != "" {
			told = o.alarm(told)
		}
		fmt.Fprintf(head, "\t%s\n", told)
	}
}
