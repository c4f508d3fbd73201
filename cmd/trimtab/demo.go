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
		Long: `Plays the built-in scenario test/scenarios/demo.yaml, as 'trimtab sim run' plays a file.
The scenario has a simulated node with two sockets. It creates an online service, batch
work, a database with CPUs of its own, and a GPU job. Then the configuration changes, and
the agent and the runtime restart.

With --serve the agent keeps running on the simulated node until you interrupt the
command, as with 'trimtab sim serve --agent': try status, top, explain, plan, events and
the web page.`,
		Example: "  trimtab demo\n  trimtab demo --serve\n  trimtab demo --step 4 --svg node.svg",
		Args:    cli.Arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := scenario.Parse(scenarios.Demo)
			if err != nil {
				return fmt.Errorf("parse the built-in demo scenario: %w", err)
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
	cmd.Flags().BoolVar(&serve, "serve", false, "keep the agent running on the simulated node until interrupted")
	to.add(cmd)
	return cmd
}
