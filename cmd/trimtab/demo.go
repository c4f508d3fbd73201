package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/scenarios"
)

func newDemo() *cobra.Command {
	var svg string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the agent at work, without root, runtime or cluster",
		Long: `Plays the scenario test/scenarios/demo.yaml, which is built in, just as 'trimtab sim
run' does with a file: a node with two sockets on which an online service, batch
work, a database with CPUs of its own and a GPU job arrive, the configuration
changes, and agent and runtime restart.`,
		Example: "  trimtab demo\n  trimtab demo --svg node.svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := scenario.Parse(scenarios.Demo)
			if err != nil {
				return fmt.Errorf("the built-in demo: %w", err)
			}
			return play(cmd.Context(), s, cmd.OutOrStdout(), svg)
		},
	}
	addPicture(cmd, &svg)
	return cmd
}
