package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/status"
)

// errEnforces is the error for an agent that runs with mode: enforce.
var errEnforces = errors.New("the agent runs with mode: enforce, so there is nothing to compare: set mode: observe and restart the agent; 'trimtab status' lists the values that are not in force")

func newObserve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Show where the node differs from what Trimtab would do (mode: observe)",
		Long: `Asks an agent with mode: observe where the node differs from the agent's decisions. Such
an agent changes nothing. The command prints a row for each setting of a container or pod:
the value that the node has now, the value that Trimtab would have set, and why.

A separate list has the values that only the creation of a container can set, such as
environment variables. No file of the node shows them.`,
		Example: "  trimtab observe\n  trimtab observe -o json | jq '.differences[] | select(.setting == \"cpuset.cpus\")'",
		Args:    cli.Arguments(0),
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			n, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if n.Observed == nil {
				return errEnforces
			}
			o, w := status.ObservationOf(n), cmd.OutOrStdout()
			return out.PrintAs(w, "Observation", o, func() error { return status.RenderObservation(w, o) })
		})
	}
	return cmd
}
