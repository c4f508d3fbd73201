package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/captured"
)

func newSim() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Try Trimtab on an embedded runtime, without cluster or root",
		Long: `The embedded runtime is a small container runtime that speaks NRI over a real socket.
It runs on a simulated node with a simulated kernel. No process is started and nothing
of this machine is changed.`,
		Args: refuseArguments,
		RunE: showHelp,
	}
	cmd.AddCommand(newSimRun(), newSimServe())
	return cmd
}

func newSimRun() *cobra.Command {
	var at stopAfterFlags
	var node *string
	cmd := &cobra.Command{
		Use:   "run SCENARIO.yaml",
		Short: "Run a scenario with the agent and show the results",
		Long: `Plays a scenario with the agent. A scenario is a file with a node, a configuration, and
steps that create, change and end pods. After each step the command shows what every
container got and why, with a picture of the node's CPUs. If a result differs from what
the scenario expects, the command reports the difference and the exit code is 1.`,
		Example: "  trimtab sim run test/scenarios/demo.yaml\n  trimtab sim run --svg node.svg test/scenarios/demo.yaml",
		Args:    cli.Arguments(1, "SCENARIO.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, from, err := loadScenario(args[0], *node)
			if err != nil {
				return err
			}
			drawn, err := at.apply(s)
			if err != nil {
				return err
			}
			return playScenario(cmd.Context(), s, cmd.OutOrStdout(), drawn, func(o *sim.RunOptions) { o.Captured = from })
		},
	}
	at.add(cmd)
	node = cmd.Flags().String("node", "", "play the scenario on the node in this `archive` of 'trimtab capture'")
	return cmd
}

// loadScenario reads a scenario. It also returns the captured node, which is the machine for the simulation, from an
// archive of 'trimtab capture'. The flag --node names the archive, or else the scenario names it. If neither names an
// archive, the captured node is nil.
func loadScenario(file, nodeFlag string) (*scenario.Scenario, *captured.Node, error) {
	s, err := scenario.Load(file)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	name, archive := "--node", nodeFlag
	if archive == "" {
		name, archive = "node.captured", s.Node.Captured
	}
	if archive == "" {
		return s, nil, nil
	}
	if !isArchive(archive) {
		return nil, nil, &usageError{fmt.Errorf("%s %s: the file is not an archive of 'trimtab capture'", name, archive)}
	}
	from, err := capturedNode(archive)
	return s, from, err
}

// untilHangup returns a context that also ends at SIGHUP, when the terminal is closed. The embedded runtime can then
// remove its files. If the process was started with SIGHUP ignored, as by nohup, SIGHUP does not end the context.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// playScenario plays a scenario with the real agent on a simulated node. Before the start, it calls the functions in
// more, which change the options of the simulation.
func playScenario(ctx context.Context, s *scenario.Scenario, out io.Writer, more ...func(*sim.RunOptions)) error {
	ctx, stop := untilHangup(ctx)
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	sim.SetNRILog(quiet)
	width, _ := terminalWidth(out)
	version := cli.ThisBuild().Version
	o := sim.RunOptions{
		Out: out, Color: useColors(out), Width: width, Log: quiet,
		Agent: func(o sim.AgentOptions) (sim.Agent, error) {
			options := simulated.Options(o)
			options.Version = version
			return agent.New(options)
		},
	}
	for _, change := range more {
		change(&o)
	}
	return sim.Run(ctx, s, o)
}

func newSimServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [SCENARIO.yaml]",
		Short: "Serve the embedded runtime to any NRI plugin, or keep an agent running on it",
		Long: `With --socket the command offers an NRI socket to any NRI plugin. Each time a plugin
connects, the embedded runtime creates, changes and removes pods: the pods of the
scenario, or a few built-in pods. The command shows each event, the plugin's answer, and
the result.

With --agent the command plays the scenario, or the demo, with Trimtab's own agent. This
agent then keeps running on the simulated node, and status, top, explain, plan, events and
the web page work as on a real node. The command prints what to type. In place of a
scenario, you can name an archive of 'trimtab capture': the captured node has no pods.

The command continues until interrupted.`,
		Example: `  trimtab sim serve --agent
  trimtab sim serve --agent test/scenarios/pools-dedicated.yaml
  trimtab sim serve --agent node-7.tar.gz
  trimtab sim serve --socket /tmp/nri.sock
  my-plugin -idx 10 -socket-path /tmp/nri.sock`,
		Args: cli.Arguments(0, "SCENARIO.yaml"),
	}
	socket := cmd.Flags().String("socket", "", "path of the NRI socket to create for plugins")
	withAgent := cmd.Flags().Bool("agent", false, "run Trimtab's own agent on the simulated node, and keep the agent running")
	var to serveFlags
	to.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *withAgent && *socket != "":
			return &usageError{errors.New("--agent and --socket exclude each other: the agent connects to a socket of its own")}
		case !*withAgent && *socket == "":
			return &usageError{errors.New("set --socket PATH to serve NRI plugins, or --agent to run Trimtab's own agent")}
		case !*withAgent && to != (serveFlags{}):
			return &usageError{errors.New("--http and --dir can only be used with --agent")}
		}
		var s *scenario.Scenario
		if *withAgent && len(args) > 0 && isArchive(args[0]) {
			return serveCapturedNode(cmd.Context(), args[0], cmd.OutOrStdout(), to)
		}
		var from *captured.Node
		if len(args) > 0 {
			var err error
			if s, from, err = loadScenario(args[0], ""); err != nil {
				return err
			}
		}
		if *withAgent {
			return playAndServe(cmd.Context(), s, cmd.OutOrStdout(), to, func(o *sim.RunOptions) { o.Captured = from })
		}
		quiet := slog.New(slog.DiscardHandler)
		sim.SetNRILog(quiet)
		out := cmd.OutOrStdout()
		width, _ := terminalWidth(out)
		ctx, stop := untilHangup(cmd.Context())
		defer stop()
		return sim.Serve(ctx, sim.ServeOptions{
			Out: out, Color: useColors(out), Width: width, Socket: *socket, Scenario: s, Captured: from, Log: quiet,
		})
	}
	return cmd
}
