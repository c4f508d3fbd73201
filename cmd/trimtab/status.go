package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What the agent on this node does: attachment, CPUs, containers",
		Long: `Asks the running agent what is in force: its configuration, the attachment to the
runtime, who owns which CPUs, and a line per container. A configuration file that
was refused and values that could not be applied are named here first.`,
		Example: "  trimtab status\n  trimtab status -o json | jq .unapplied",
		Args:    cobra.NoArgs,
	}
	socket := addSocket(cmd)
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return asking(cmd.Context(), *socket, func(c *status.Client) error {
			n, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return out.print(w, n, func() error {
				return status.RenderStatus(w, n, status.Options{Color: colors(w), Now: time.Now()})
			})
		})
	}
	return cmd
}

// addSocket gives a command that asks the agent the flag that says where.
func addSocket(cmd *cobra.Command) *string {
	return cmd.Flags().String("socket", config.Default().Paths.StatusSocket, "status socket of the agent")
}

// asking calls f with a client of the agent at socket.
func asking(ctx context.Context, socket string, f func(*status.Client) error) error {
	c, err := status.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
