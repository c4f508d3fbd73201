package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newEvents() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show each event as it happens, and what the agent decided for it",
		Long: `Shows the agent's journal, oldest first: each event from the runtime, the values that
were decided for it, and what other containers lost or got. It continues until
interrupted; with --follow=false it prints the past events and ends. With -o json each
line is one event. With -o yaml each document is one event.

With --full it shows the whole message of each new event: pod, container, request, and
the decisions with values and reasons. --record writes the same to a file, for 'trimtab
replay'. Each line of the file is a JSON document; the first line has the node, its
configuration and its state. The file has the environment, arguments and annotations of
containers. --without-env leaves out the values of environment variables. The agent does
not wait for this command. If the command reads too slowly, it misses events, and reports
how many.`,
		Example: "  trimtab events\n  trimtab events --follow=false -o json\n  trimtab events --since 5m\n  trimtab events --full\n  trimtab events --record node.jsonl --without-env",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	follow := cmd.Flags().BoolP("follow", "f", true, "continue with new events until interrupted")
	var from sinceFlag
	cmd.Flags().Var(&from, "since", "show only events after the event with this number, or events of the last duration, such as 5m")
	whole := addFullEventFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := cmd.OutOrStdout()
		if full, err := whole.wantsFull(cmd); full || err != nil {
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), *socket, func(c *status.Client) error { return whole.run(cmd.Context(), c, w, cmd.ErrOrStderr()) })
		}
		show := func(e api.Event) error {
			return status.RenderEvent(w, e, status.Options{Color: useColors(w)})
		}
		switch out.String() {
		case "json":
			show = func(e api.Event) error {
				b, err := json.Marshal(eventDocument{cli.APIVersion, e})
				return writeEvent(cmd, append(b, '\n'), err)
			}
		case "yaml":
			show = func(e api.Event) error {
				b, err := yaml.Marshal(eventDocument{cli.APIVersion, e})
				return writeEvent(cmd, append([]byte("---\n"), b...), err)
			}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			return c.Events(cmd.Context(), from.seq, *follow, from.filter(time.Now(), show))
		})
	}
	return cmd
}

// eventDocument is an event as a JSON or YAML document. The kind of the document is the kind of the event.
type eventDocument struct {
	APIVersion string `json:"apiVersion"`
	api.Event
}

// writeEvent prints the encoded event b, or returns err, the error of the encoding.
func writeEvent(cmd *cobra.Command, b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return cli.Write(cmd.OutOrStdout(), b)
}
