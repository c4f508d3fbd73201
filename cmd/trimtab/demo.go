package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/scenarios"
)

func newDemo() *cobra.Command {
	var at stopAfterFlags
	var serve bool
	var to serveFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the agent in a demo, without root, runtime or cluster",
		Long: `Plays the scenario test/scenarios/demo.yaml, which is built in, just as 'trimtab sim
run' does with a file: a node with two sockets on which an online service, batch
work, a database with CPUs of its own and a GPU job are created, the configuration
changes, and agent and runtime restart.

With --serve the agent keeps running on that node until interrupted, as with 'trimtab sim
serve --agent': try status, top, explain, plan, events and the web page.`,
		Example: "  trimtab demo\n  trimtab demo --serve\n  trimtab demo --step 4 --svg node.svg",
		Args:    cli.Arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := scenario.Parse(scenarios.Demo)
			if err != nil {
				return fmt.Errorf("the built-in demo: %w", err)
			}
			if !serve && to != (serveFlags{}) {
				return &usageError{errors.New("--http and --dir can only be used with --serve")}
			}
			drawn, err := at.apply(s)
			if err != nil {
				return err
			}
			if !serve {
				return playScenario(cmd.Context(), s, cmd.OutOrStdout(), drawn)
			}
			return playAndServe(cmd.Context(), s, cmd.OutOrStdout(), to, drawn)
		},
	}
	at.add(cmd)
	cmd.Flags().BoolVar(&serve, "serve", false, "keep the agent running on the described node until interrupted")
	to.add(cmd)
	return cmd
}
