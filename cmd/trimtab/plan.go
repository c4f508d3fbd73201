package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/captured"
)

func newPlan() *cobra.Command {
	cmd := setUpPlanCommand(&cobra.Command{
		Use:   "plan PODS.yaml",
		Short: "Show where pods would be placed on this node now",
		Long: `Asks the running agent what it would decide for pods that were created now, one after
another: their class, their CPUs and every value, what it would refuse, and which running
containers would get other CPUs. Nothing is placed or written.

The file has pods, lists of pods, or workloads (one pod of each), as 'helm template' and
'kubectl get -o yaml' print them. The file name - means standard input. Objects of other
kinds are ignored and counted. The exit code is 4 if a pod or container would be refused.

With --node no agent is needed. If --node has CPUs or an archive, the command plans the
pods on an empty node, with the configuration in --config. If --node is a scenario, the
command plans them on the scenario's node after the last step. Without --node, --config
only says where the agent's socket is: the agent decides by its own configuration.
'trimtab config plan FILE' tries another configuration on the running agent.`,
		Example: `  trimtab plan pods.yaml
  kubectl get pod db -o yaml | trimtab plan -
  helm template my-chart | trimtab plan --node "2s x 4n x 8c x 2t" -
  trimtab plan --node test/scenarios/demo.yaml -f pods.yaml
  trimtab plan --node node-7.tar.gz pods.yaml`,
	}, "PODS.yaml", (*status.Client).PlanPods)
	node := cmd.Flags().String("node", "", "plan on this simulated `node`: CPUs (\"2s x 4n x 8c\"), a scenario file, or a file of 'trimtab capture'")
	ask, connect := cmd.RunE, cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *node == "" {
			return connect(cmd, args)
		}
		if cmd.Flags().Changed("socket") {
			return &usageError{errors.New("--node and --socket exclude each other: with --node the command asks no running agent")}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *node == "" {
			return explainConfigFlag(cmd, ask(cmd, args))
		}
		s, err := planScenario(*node, cmd.Flag("config").Value.String())
		if err != nil {
			return &usageError{err}
		}
		from, err := capturedNode(*node)
		if err != nil {
			return err
		}
		return playOnNode(cmd.Context(), s, from, func(socket string) error {
			if err := cmd.Flags().Set("socket", socket); err != nil {
				return err
			}
			return ask(cmd, args)
		})
	}
	return cmd
}

// explainConfigFlag adds an explanation of the flag --config to err, if the flag is set and err means that no agent
// runs.
func explainConfigFlag(cmd *cobra.Command, err error) error {
	if isNoAgent(err) && cmd.Flags().Changed("config") {
		return fmt.Errorf("%w; --config only says where the agent's socket is: to plan with this configuration, without an agent, add --node \"2s x 8c\"", err)
	}
	return err
}

// planScenario returns a scenario without steps. Its node has the CPUs in node and the configuration in file, or the
// defaults if file is "". If node is the path of a scenario, planScenario returns that scenario.
func planScenario(node, file string) (*scenario.Scenario, error) {
	if isArchive(node) {
		node = "1c" // the archive describes the machine, so these CPUs are not used
	} else if _, err := os.Stat(node); err == nil {
		if file != "" {
			return nil, errors.New("--config needs --node with CPUs, such as \"2s x 8c\": a scenario has its own configuration")
		}
		return scenario.Load(node)
	}
	s := &scenario.Scenario{Name: "plan", Node: scenario.Node{CPUs: node, Cgroup: "v2", Driver: string(sim.Systemd)}}
	if file == "" {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w; 'trimtab config init' writes a configuration, and without --config the defaults apply", err)
	}
	if _, err := config.Parse(file, text); err != nil {
		return nil, withAdvice(file, err)
	}
	var keys map[string]any
	if err := yamlv3.NewDecoder(bytes.NewReader(text)).Decode(&keys); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--config %s: %w", file, err)
	}
	delete(keys, "apiVersion")
	delete(keys, "kind")
	if text, err = yamlv3.Marshal(keys); err == nil {
		s.Config, err = yaml.YAMLToJSON(text)
	}
	return s, err
}

// withAdvice adds to err, the errors in a configuration file, what the user can do.
func withAdvice(file string, err error) error {
	return fmt.Errorf("%w\ncorrect the file until 'trimtab config check %s' finds no problem, then run this command again", err, file)
}

// playOnNode plays a scenario with an agent, and then calls do with the agent's status socket. A machine that is not
// nil replaces the CPUs and memory of the scenario's node.
func playOnNode(ctx context.Context, s *scenario.Scenario, machine *captured.Node, do func(socket string) error) error {
	var result error
	err := playScenario(ctx, s, io.Discard, func(o *sim.RunOptions) {
		o.Out, o.Captured = nil, machine
		o.AfterLastStep = func(_ context.Context, _ string, c config.Config, _ api.Node) error {
			result = do(c.Paths.StatusSocket)
			return nil
		}
	})
	if unmet := (*sim.UnmetError)(nil); err != nil && !errors.As(err, &unmet) {
		return &usageError{fmt.Errorf("--node: %w", err)}
	}
	return result
}

func newConfigPlan() *cobra.Command {
	return setUpPlanCommand(&cobra.Command{
		Use:   "plan FILE",
		Short: "Show what another configuration would change for running containers",
		Long: `Asks the running agent what another configuration file would change, and shows which
running containers would get other CPUs, classes and values. Nothing changes. The command
does not compare keys that the agent reads only at its start. The file may also be a
custom resource BalloonsPolicy or TopologyAwarePolicy of containers/nri-plugins: it then
replaces only the policy in the agent's configuration.`,
		Example: "  trimtab config plan new.yaml\n  kubectl get -n kube-system balloonspolicies default -o yaml | trimtab config plan -",
	}, "FILE", (*status.Client).PlanConfig)
}

// setUpPlanCommand adds flags and the function RunE to cmd. When the user runs cmd, it reads a file and calls ask. The
// function ask sends the file's text to the agent, and returns the agent's plan, which cmd prints. The parameter arg is
// the name of the file argument in error messages.
func setUpPlanCommand(cmd *cobra.Command, arg string, ask func(*status.Client, context.Context, []byte) (api.Plan, error)) *cobra.Command {
	file := cmd.Flags().StringP("filename", "f", "", "the `file`, in place of the argument, as for kubectl")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *file != "" && len(args) > 0 {
			return fmt.Errorf("%q takes one file: name it with -f (%s) or as the argument (%s), not both", cmd.CommandPath(), *file, args[0])
		}
		if *file != "" {
			return nil
		}
		return cli.Arguments(1, arg)(cmd, args)
	}
	socket := addSocket(cmd)
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := *file
		if name == "" {
			name = args[0]
		}
		text, err := readInput(name, cmd.InOrStdin())
		if err != nil {
			return &usageError{err}
		}
		return withClient(cmd.Context(), *socket, func(c *status.Client) error {
			o, err := ask(c, cmd.Context(), text)
			if err != nil {
				return asUsageError(fmt.Errorf("%s: %w", name, err))
			}
			w := cmd.OutOrStdout()
			if err := out.PrintAs(w, "Plan", o, func() error { return status.RenderPlan(w, o) }); err != nil {
				return err
			}
			if n := len(o.Rejected); n > 0 {
				return &refusalError{n}
			}
			return nil
		})
	}
	return cmd
}

// asUsageError returns a usage error if err means that the agent refused the request as invalid, and err otherwise.
func asUsageError(err error) error {
	if answer := (*status.RefusedError)(nil); errors.As(err, &answer) && answer.Status == http.StatusBadRequest {
		return &usageError{err}
	}
	return err
}

// readInput reads a file, or standard input if file is "-".
func readInput(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}
