package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
)

func newConfig(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Compare configurations with the cluster's ConfigMaps, and roll them out",
		Long: `Agents read their configuration from ConfigMaps in their namespace: one for all nodes
(trimtab-cluster), one for each group of nodes (trimtab-group-NAME), one for a node
(trimtab-node-NODE). A later ConfigMap has priority over the earlier ones.`,
		Args: cli.Arguments(0),
		RunE: showHelp,
	}
	cmd.AddCommand(newConfigDiff(p), newConfigApply(p))
	return cmd
}

// addTargetFlags adds to a command the flags that select the nodes and the ConfigMap to write.
func addTargetFlags(cmd *cobra.Command) *fleet.Target {
	var t fleet.Target
	cmd.Flags().StringVar(&t.Group, "group", "", "write the ConfigMap of this group of nodes, not the ConfigMap of all nodes")
	cmd.Flags().StringVar(&t.Node, "node", "", "write the ConfigMap of this node")
	cmd.Flags().StringVarP(&t.Selector, "selector", "l", "", "labels of the group's nodes; required for a new group")
	cmd.MarkFlagsMutuallyExclusive("group", "node")
	return &t
}

// configChange reads the configuration file and computes the change of the target's ConfigMap.
func (p *plugin) configChange(cmd *cobra.Command, t fleet.Target, file string) (*fleet.Cluster, *fleet.Change, error) {
	if t.Selector != "" && t.Group == "" {
		return nil, nil, &usageError{errors.New("--selector can only be used with --group")}
	}
	text, err := readInput(file, cmd.InOrStdin())
	if err != nil {
		return nil, nil, err
	}
	c, found, err := p.connectToAll(cmd.Context())
	if err != nil {
		return nil, nil, err
	}
	ch, err := c.Plan(cmd.Context(), t, file, string(text), found)
	return c, ch, err
}

func newConfigDiff(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff -f FILE [--group GROUP | --node NODE]",
		Short: "Compare a file with the ConfigMap in the cluster, and show which containers would move",
		Long: `Compares a file with the ConfigMap that 'config apply' would write, and asks the agents
of its nodes which running containers would get other CPUs. Nothing is changed.

The exit code is 1 if they differ.`,
		Example: "  kubectl trimtab config diff -f config.yaml\n  kubectl trimtab config diff -f latency.yaml --group latency",
		Args:    cli.Arguments(0),
	}
	file := addFileFlag(cmd, "configuration")
	target := addTargetFlags(cmd)
	moves := cmd.Flags().Bool("moves", true, "ask the agents which containers would move")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, ch, err := p.configChange(cmd, *target, *file)
		if err != nil {
			return err
		}
		if ch.IsEmpty() {
			return cli.Write(cmd.OutOrStdout(), fmt.Appendf(nil, "ConfigMap %s has this configuration\n", ch.Target.Name()))
		}
		if err := cli.Write(cmd.OutOrStdout(), configDiff(ch)); err != nil {
			return err
		}
		if *moves {
			if err := p.printMoves(cmd, c, ch); err != nil {
				return err
			}
		}
		return &printedError{exitFailure}
	}
	return cmd
}

// configDiff returns the difference between the ConfigMap in the cluster and the file.
func configDiff(ch *fleet.Change) []byte {
	return diff.Diff("ConfigMap "+ch.Maps.Namespace+"/"+ch.Target.Name(), []byte(ch.Before()), ch.File, []byte(ch.Text))
}

// printMoves asks the agents of the changed nodes which running containers would get other CPUs, and prints them.
func (p *plugin) printMoves(cmd *cobra.Command, c *fleet.Cluster, ch *fleet.Change) error {
	all := fleet.ForEachNode(cmd.Context(), ch.Nodes, p.maxParallel, func(ctx context.Context, n fleet.Node) podPlan {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		file, err := c.File(ctx, n.Agent)
		if err == nil {
			file, err = ch.Effective(n, file)
		}
		if err != nil {
			return podPlan{Node: n.Name, Reason: err.Error()}
		}
		o, err := fleet.Ask[fleet.Plan](ctx, c, n.Agent, []byte(file), "config", "plan", "-")
		if err != nil {
			return podPlan{Node: n.Name, Reason: err.Error()}
		}
		return podPlan{Node: n.Name, Plan: &o}
	}, showProgress(cmd, len(ch.Nodes)))
	var rows [][]string
	for _, x := range all {
		switch {
		case x.Plan == nil:
			rows = append(rows, []string{x.Node, "", "", "", x.Reason})
		case len(x.Plan.Moves) == 0:
			rows = append(rows, []string{x.Node, "", "", "", "no container moves"})
		default:
			for _, m := range x.Plan.Moves {
				rows = append(rows, []string{x.Node, strings.TrimSuffix(m.Pod+"/"+m.Container, "/"), m.Before, m.After, ""})
			}
		}
	}
	return writeTable(cmd.OutOrStdout(), "NODE\tCONTAINER\tCPUS NOW\tCPUS THEN\tNOTE", rows)
}

// applyFlags has the flags of config apply.
type applyFlags struct {
	file                string
	target              fleet.Target
	watch, dryRun       bool          // watch: roll out node by node; dryRun: only show what would be written
	abort, skip         bool          // abort: undo a stopped rollout; skip: skip nodes whose agents do not answer
	pause, agentTimeout time.Duration // pause: how long to watch a node; agentTimeout: how long an agent may take
}

func newConfigApply(p *plugin) *cobra.Command {
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE [--group GROUP | --node NODE] [--watch]",
		Short: "Write a configuration to its ConfigMap, at once or node by node",
		Long: `Writes a configuration to the ConfigMap of all nodes, of a group or of a node. The file is
checked first. Without --watch all its nodes apply it at once.

With --watch it is rolled out node by node. Each node gets it in a ConfigMap for this node.
The rollout continues with the next node after the agent has applied it, --pause is over,
and the node is not worse than before. It stops at the first node that is not ready, or on
which more values and requests are not in force than before. At the end it writes the
target's ConfigMap, and restores the ConfigMaps of the nodes. At any
time each node has either the old or the new configuration. The same command continues a
rollout that stopped or was interrupted; --abort undoes it.`,
		Example: "  kubectl trimtab config apply -f config.yaml --watch --dry-run\n" +
			"  kubectl trimtab config apply -f latency.yaml --group latency -l pool=latency --watch\n" +
			"  kubectl trimtab config apply --abort",
		Args: cli.Arguments(0),
	}
	file, target := addFileFlag(cmd, "configuration"), addTargetFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&a.watch, "watch", false, "roll out node by node, and stop if a node is worse than before")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would be written, and the order of the nodes")
	f.BoolVar(&a.abort, "abort", false, "undo a rollout that stopped: restore the previous configuration of its nodes")
	f.BoolVar(&a.skip, "skip-unreachable", false, "skip nodes whose agents do not answer; they apply the configuration at the end")
	f.DurationVar(&a.pause, "pause", 10*time.Second, "how long to watch a node before the rollout continues with the next node")
	f.DurationVar(&a.agentTimeout, "patience", 2*time.Minute, "how long an agent may take to apply a configuration")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.file, a.target = *file, *target
		if a.abort {
			return p.abort(cmd)
		}
		return p.apply(cmd, a)
	}
	return cmd
}

func (p *plugin) apply(cmd *cobra.Command, a applyFlags) error {
	c, ch, err := p.configChange(cmd, a.target, a.file)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	r := &fleet.Rollout{
		Cluster: c, Change: ch, Pause: a.pause, AgentTimeout: a.agentTimeout, Timeout: p.timeout,
		Progress: func(text string, args ...any) { fmt.Fprintf(w, text+"\n", args...) },
	}
	begun, err := r.CountChanged()
	if err != nil {
		return err
	}
	if ch.IsEmpty() && begun == 0 {
		return cli.Write(w, fmt.Appendf(nil, "ConfigMap %s has this configuration already\n", ch.Target.Name()))
	}
	if a.dryRun {
		return dryRun(cmd, ch, a.watch, begun)
	}
	if a.watch && len(ch.Skipped) > 0 && !a.skip {
		n := ch.Skipped[0]
		return &fleet.UnreachableError{Reason: fmt.Sprintf("%d of the nodes do not answer, the first is %s: %s\n"+
			"Nothing was written. Use --skip-unreachable to skip them; they apply the configuration when all other nodes have it", len(ch.Skipped), n.Name, n.WhyUnreachable())}
	}
	if a.watch {
		if begun > 0 {
			r.Progress("continuing: %d of %d nodes have the new configuration", begun, len(ch.Nodes))
		}
		if err := r.Run(cmd.Context()); err != nil {
			return err
		}
		r.Progress("done: %d nodes", len(ch.Nodes))
		return nil
	}
	if begun > 0 {
		return fmt.Errorf("a rollout of this configuration has changed %d nodes: continue with --watch, or restore the old configuration with --abort", begun)
	}
	if err := ch.Apply(cmd.Context()); err != nil {
		return err
	}
	r.Progress("wrote ConfigMap %s/%s; %d nodes apply it now: 'kubectl trimtab nodes' shows them", ch.Maps.Namespace, ch.Target.Name(), len(ch.Nodes))
	return nil
}

// dryRun prints what config apply would write, and the nodes in order. begun is the number of nodes that already have
// the configuration.
func dryRun(cmd *cobra.Command, ch *fleet.Change, watch bool, begun int) error {
	w := cmd.OutOrStdout()
	if err := cli.Write(w, configDiff(ch)); err != nil {
		return err
	}
	var names []string
	for _, n := range ch.Nodes {
		names = append(names, n.Name)
	}
	how := "all nodes at once"
	if watch {
		how = "one node after another"
	}
	fmt.Fprintf(w, "%d nodes, %s: %s\n", len(names), how, strings.Join(names, " "))
	if begun > 0 {
		fmt.Fprintf(w, "%d of these nodes already have this configuration\n", begun)
	}
	for _, n := range ch.Skipped {
		fmt.Fprintf(w, "the agent of node %s does not answer: %s\n", n.Name, n.WhyUnreachable())
	}
	fmt.Fprintln(w, "nothing was written (--dry-run)")
	return nil
}

func (p *plugin) abort(cmd *cobra.Command) error {
	c, found, err := p.connectToAll(cmd.Context())
	if err != nil {
		return err
	}
	namespace, err := found.Namespace()
	if err != nil {
		return err
	}
	maps, err := c.ReadConfigMaps(cmd.Context(), namespace)
	if err != nil {
		return err
	}
	nodes, err := maps.Abort(cmd.Context())
	w := cmd.OutOrStdout()
	if len(nodes) > 0 {
		fmt.Fprintf(w, "restored the previous configuration of %d nodes: %s\n", len(nodes), strings.Join(nodes, " "))
	} else if err == nil {
		fmt.Fprintln(w, "no rollout is in progress")
	}
	return err
}
