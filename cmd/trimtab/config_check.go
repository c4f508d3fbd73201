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
line and key. The exit code is 2 if there is one. Keys that have no effect beside the
other keys of the file are warnings.

With --node it also checks that the CPUs and NUMA nodes that a file names exist there:
--node host is the machine on which the command runs.`,
		Example: `  trimtab config check /etc/trimtab/config.yaml
  trimtab config check --node host /etc/trimtab/config.yaml
  trimtab config check --node "2s x 8c x 2t" pools.yaml`,
		Args: cli.Arguments(1, "FILE..."),
	}
	node := cmd.Flags().String("node", "", "also check for a `node`: host, CPUs as \"2s x 4n x 8c x 2t\", a scenario, or an archive of 'capture'")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var machine *topology.Machine
		if *node != "" {
			var err error
			if machine, err = machineOf(*node); err != nil {
				return &usageError{fmt.Errorf("--node %s: %w", *node, err)}
			}
		}
		var wrong error
		for _, file := range args {
			if err := checkConfig(file, machine, cmd.ErrOrStderr()); err != nil {
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

// checkConfig checks one file, and writes remarks that are no errors. machine is nil if it is not known.
func checkConfig(file string, machine *topology.Machine, remarks io.Writer) error {
	text, err := config.Read(file)
	if err != nil {
		return err
	}
	c, err := config.Parse(file, text)
	if err != nil {
		return err
	}
	if machine != nil {
		if err := agent.CheckMachine(c, machine); err != nil {
			p := config.Located(file, text, err)
			p.What += "; an agent would not start there: change the key, or name another node"
			return &config.Error{Problems: []config.Problem{p}}
		}
	}
	for _, p := range config.Remarks(file, text) {
		fmt.Fprintf(remarks, "warning: %s\n", p)
	}
	return nil
}

// machineOf reads the machine that a value of --node names.
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
