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
		Short: "Show each event as it happens, and what was decided",
		Long: `Shows the agent's journal, oldest first: each event from the runtime, the values
decided for it, and what others lost or got by it. It continues until interrupted;
with --follow=false it prints the past events and ends. With -o json each line is
one event, with -o yaml each document.

With --full it shows the whole message of each event from now on: pod, container,
request, and what was decided with values and reasons. --record keeps the same in a
file, a JSON document a line, which begins with the node, its configuration and its
state; 'trimtab replay' reads it. It has what containers were given: environment,
arguments, annotations. --without-env leaves out the values of environment variables.
A reader that is too slow misses events, which are counted; no pod waits for it.`,
		Example: "  trimtab events\n  trimtab events --follow=false -o json\n  trimtab events --since 5m\n  trimtab events --full\n  trimtab events --record node.jsonl --without-env",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	follow := cmd.Flags().BoolP("follow", "f", true, "continue with new events until interrupted")
	var from since
	cmd.Flags().Var(&from, "since", "begin after the event with this number, or with events since this long ago, such as 5m")
	whole := addFullEvents(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		w := cmd.OutOrStdout()
		if full, err := whole.wantsFull(cmd); full || err != nil {
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), *socket, func(c *status.Client) error { return whole.run(cmd.Context(), c, w, cmd.ErrOrStderr()) })
		}
		show := func(e api.Event) error {
			return status.RenderEvent(w, e, status.Options{Color: colors(w)})
		}
		switch out.String() {
		case "json":
			show = func(e api.Event) error {
				b, err := json.Marshal(versioned{cli.APIVersion, e})
				return writeEvent(cmd, append(b, '\n'), err)
			}
		case "yaml":
			show = func(e api.Event) error {
				b, err := yaml.Marshal(versioned{cli.APIVersion, e})
				return writeEvent(cmd, append([]byte("---\n"), b...), err)
			}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			return c.Events(cmd.Context(), from.seq, *follow, from.after(time.Now(), show))
		})
	}
	return cmd
}

// versioned is an event as a document. Its kind is the event's kind.
type versioned struct {
	APIVersion string `json:"apiVersion"`
	api.Event
}

func writeEvent(cmd *cobra.Command, b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return cli.Write(cmd.OutOrStdout(), b)
}
