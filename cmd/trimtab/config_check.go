package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// thisHost is the value of --node that means the machine on which the command runs.
const thisHost = "host"

func newConfigCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check configuration files",
		Long: `Reads configuration files as the agent would and names every problem with file,
line and key. The exit code is 2 if there is a problem. The command warns about keys with
a former name, and about keys that have no effect because of other keys in the file.

With --node it also checks that the CPUs and NUMA nodes in a file exist on that node:
--node host is the machine on which the command runs.`,
		Example: `  trimtab config check /etc/trimtab/config.yaml
  trimtab config check --node host /etc/trimtab/config.yaml
  trimtab config check --node "2s x 8c x 2t" pools.yaml`,
		Args: cli.Arguments(1, "FILE..."),
	}
	node := cmd.Flags().String("node", "", "also check for a `node`: host, CPUs (\"2s x 4n x 8c\"), a scenario file, or a file of 'trimtab capture'")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var machine *topology.Machine
		if *node != "" {
			var err error
			if machine, err = machineOf(*node); err != nil {
				return &usageError{fmt.Errorf("--node %s: %w", *node, err)}
			}
		}
		check := func(c config.Config) (effect string, wrong []error) { return checkNode(c, machine, *node == thisHost) }
		var wrong error
		for _, file := range args {
			if err := checkConfig(file, check, cmd.ErrOrStderr()); err != nil {
				wrong = errors.Join(wrong, err)
				continue
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", file)
		}
		if wrong != nil {
			return &usageError{wrong}
		}
		return nil
	}
	return cmd
}

// checkConfig checks one configuration file, and writes warnings to the parameter warnings. It calls compareWithNode to
// compare the configuration with a node. This function returns one error for each problem that it finds. Its result
// effect is a text for the user: whether an agent would start with these problems, and what to change.
func checkConfig(file string, compareWithNode func(config.Config) (effect string, wrong []error), warnings io.Writer) error {
	text, err := config.Read(file)
	if err != nil {
		return err
	}
	c, err := config.Parse(file, text)
	if err != nil {
		return err
	}
	if effect, wrong := compareWithNode(c); len(wrong) > 0 {
		missing := &config.Error{}
		for _, err := range wrong {
			p := config.ProblemOf(file, text, err)
			p.What += "; " + effect
			missing.Problems = append(missing.Problems, p)
		}
		return missing
	}
	for _, p := range config.Remarks(file, text) {
		fmt.Fprintf(warnings, "warning: %s\n", p)
	}
	return nil
}

// checkNode compares a configuration with machine m, and returns an error for each problem. The result effect is a text
// for the user: whether an agent would start with these problems, and what to change. checkNode compares the
// frequencies and idle states of CPUs only if thisMachine is set, because it reads them from the files of the host. If
// m is nil, it compares nothing and returns no error.
func checkNode(c config.Config, m *topology.Machine, thisMachine bool) (effect string, wrong []error) {
	if m == nil {
		return "", nil
	}
	if err := agent.CheckMachine(c, m); err != nil {
		return "an agent would not start on this node: change the key, or name another node", []error{err}
	}
	if !thisMachine {
		return "", nil
	}
	return "an agent would start, and leave these CPUs as they are: change the CPU class", agent.CheckCPUs(c, m)
}

// machineOf returns the machine that a value of the flag --node describes.
func machineOf(node string) (*topology.Machine, error) {
	if node == thisHost {
		return sysfs.Read(os.DirFS(config.Default().Paths.Sys))
	}
	if isArchive(node) {
		from, err := capturedNode(node)
		if err != nil {
			return nil, err
		}
		return from.Machine, nil
	}
	if _, err := os.Stat(node); err != nil {
		return sim.Machine(scenario.Node{CPUs: node}, nil)
	}
	s, from, err := loadScenario(node, "")
	if err != nil {
		return nil, err
	}
	return sim.Machine(s.Node, from)
}
