package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
)

func newPlan() *cobra.Command {
	return planCommand(&cobra.Command{
		Use:   "plan PODS.yaml",
		Short: "Show where pods would be placed on this node now",
		Long: `Asks the running agent what it would decide for pods if they came now, one after
another: their class, their CPUs and every value, what it would refuse, and which
running containers would get other CPUs. Nothing is placed or written.

The file has pods, lists of pods, or workloads (one pod of each); - is standard
input. The exit code is 1 if something would be refused.`,
		Example: "  trimtab plan pods.yaml\n  kubectl get pod db -o yaml | trimtab plan -",
	}, "PODS.yaml", (*status.Client).PlanPods)
}

func newConfigPlan() *cobra.Command {
	return planCommand(&cobra.Command{
		Use:   "plan FILE",
		Short: "Show which running containers another configuration would move",
		Long: `Asks the running agent to check a configuration file against what runs, and shows
which containers would get other CPUs. Nothing changes.`,
		Example: "  trimtab config plan new.yaml",
	}, "FILE", (*status.Client).PlanConfig)
}

// planCommand completes a command that asks for a what-if.
func planCommand(cmd *cobra.Command, arg string, ask func(*status.Client, context.Context, []byte) (api.Outlook, error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := read(args[0], cmd.InOrStdin())
		if err != nil {
			return &misuse{fmt.Errorf("%s: %w", arg, err)}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			o, err := ask(c, cmd.Context(), text)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			w := cmd.OutOrStdout()
			if err := out.Print(w, o, func() error { return status.RenderOutlook(w, o) }); err != nil {
				return err
			}
			if n := len(o.Rejected); n > 0 {
				return fmt.Errorf("%d would be refused", n)
			}
			return nil
		})
	}
	return cmd
}

// read reads a file, or standard input for -.
func read(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}
