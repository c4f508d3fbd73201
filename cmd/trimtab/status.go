package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "What the agent on this node does: attachment, CPUs, containers",
		Long: `Asks the running agent what is in force: its configuration, the attachment to the
runtime, who owns which CPUs, and a line per container. A configuration file that
was refused and values that could not be applied are named here first.`,
		Example: "  trimtab status\n  trimtab status -o json | jq .unapplied\n  trimtab status --svg node.svg",
		Args:    cobra.NoArgs,
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	var svg string
	addPicture(cmd, &svg)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			n, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if svg != "" {
				return picture(svg, n)
			}
			w := cmd.OutOrStdout()
			return out.Print(w, n, func() error {
				return status.RenderStatus(w, n, status.Options{Color: colors(w), Now: time.Now()})
			})
		})
	}
	return cmd
}

// addPicture gives a command the flag --svg.
func addPicture(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "svg", "", "draw the node's CPUs and who may use them to this SVG `file`; - is standard output")
	// The flag was made in the line above.
	_ = cmd.MarkFlagFilename("svg", "svg")
}

// picture draws a node to a file, or to none if it has no name.
func picture(file string, n api.Node) error {
	var b bytes.Buffer
	if err := status.SVG(&b, n, time.Now()); err != nil || file == "" {
		return err
	}
	if file == "-" {
		return cli.Write(os.Stdout, b.Bytes())
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("draw the node: %w", err)
	}
	return nil
}

// withClient calls f with a client of the agent at socket.
func withClient(ctx context.Context, socket string, f func(*status.Client) error) error {
	c, err := status.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
