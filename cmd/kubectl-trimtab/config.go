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

// newConfig returns the command config, whose subcommands are diff and apply.
func newConfig(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Compare a configuration file with its ConfigMap, and roll out the file",
		Long: `Agents read their configuration from ConfigMaps in their namespace: one for all nodes
(trimtab-cluster), one for each group of nodes (trimtab-group-NAME), one for a node
(trimtab-node-NODE). In this order, a later ConfigMap overrides the earlier ones.`,
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
	cmd.Flags().StringVarP(&t.Selector, "selector", "l", "", "label selector of the group's nodes; required for a new group")
	cmd.MarkFlagsMutuallyExclusive("group", "node")
	return &t
}

// configChange reads the configuration file and computes how the ConfigMap of the target t would change.
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
	ch, err := c.PlanChange(cmd.Context(), t, file, string(text), found)
	return c, ch, err
}

// newConfigDiff returns the command config diff, which compares a file with its ConfigMap.
func newConfigDiff(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff -f FILE [--group GROUP | --node NODE]",
		Short: "Compare a file with the ConfigMap in the cluster, and show which containers would get other CPUs",
		Long: `Compares a file with the ConfigMap that 'config apply' would write. It asks the agents
that read this ConfigMap which running containers would get other CPUs. Nothing is
changed.

The exit code is 1 if the file and the ConfigMap differ.`,
		Example: "  kubectl trimtab config diff -f config.yaml\n  kubectl trimtab config diff -f latency.yaml --group latency",
		Args:    cli.Arguments(0),
	}
	file := addFileFlag(cmd, "configuration")
	target := addTargetFlags(cmd)
	moves := cmd.Flags().Bool("moves", true, "ask the agents which containers would get other CPUs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, ch, err := p.configChange(cmd, *target, *file)
		if err != nil {
			return err
		}
		if ch.IsEmpty() {
			return cli.Write(cmd.OutOrStdout(), fmt.Appendf(nil, "ConfigMap %s has this configuration already\n", ch.Target.Name()))
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

// printMoves asks the agents of the changed nodes which running containers would get other CPUs, and prints these
// containers.
func (p *plugin) printMoves(cmd *cobra.Command, c *fleet.Cluster, ch *fleet.Change) error {
	all := fleet.ForEachNode(cmd.Context(), ch.Nodes, p.maxParallel, func(ctx context.Context, n fleet.Node) nodePlan {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		file, err := c.ConfigText(ctx, n.Agent)
		if err == nil {
			file, err = ch.Effective(n, file)
		}
		if err != nil {
			return nodePlan{Node: n.Name, Reason: err.Error()}
		}
		o, err := fleet.Ask[fleet.Plan](ctx, c, n.Agent, []byte(file), "config", "plan", "-")
		if err != nil {
			return nodePlan{Node: n.Name, Reason: err.Error()}
		}
		return nodePlan{Node: n.Name, Plan: &o}
	}, showProgress(cmd, len(ch.Nodes)))
	var rows [][]string
	for _, x := range all {
		switch {
		case x.Plan == nil:
			rows = append(rows, []string{x.Node, "", "", "", x.Reason})
		case len(x.Plan.Moves) == 0:
			rows = append(rows, []string{x.Node, "", "", "", "no container would get other CPUs"})
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
	file          string       // the configuration file; "-" is standard input
	target        fleet.Target // the ConfigMap to write
	watch, dryRun bool         // watch: roll out node by node; dryRun: only show what would be written
	abort, skip   bool         // abort: undo a stopped rollout; skip: skip nodes whose agents do not answer
	// pause is how long to watch a node. agentTimeout is how long one agent may take to apply the configuration.
	pause, agentTimeout time.Duration
}

// newConfigApply returns the command config apply, which writes a file to its ConfigMap.
func newConfigApply(p *plugin) *cobra.Command {
	var a applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE [--group GROUP | --node NODE] [--watch]",
		Short: "Write a configuration to its ConfigMap, at once or node by node",
		Long: `Writes a configuration to the ConfigMap of all nodes, of a group or of a node. The file is
checked first. Without --watch, all nodes of the ConfigMap apply the new configuration at
once.

With --watch, one node after another applies the configuration. The command writes it to
a ConfigMap for this node only, and waits until the node's agent has applied it. Then it
watches the node for the time of --pause, and continues with the next node. The rollout
stops if a node's agent is not ready, or if the node has more values and requests that
are not in force than before. At the end the command writes the ConfigMap of the group or
of all nodes, and restores the ConfigMaps of the single nodes. At any time each node has
either the old or the new configuration. To continue a rollout that stopped or was
interrupted, run the same command again. To undo the rollout, use --abort.`,
		Example: "  kubectl trimtab config apply -f config.yaml --watch --dry-run\n" +
			"  kubectl trimtab config apply -f latency.yaml --group latency -l pool=latency --watch\n" +
			"  kubectl trimtab config apply --abort",
		Args: cli.Arguments(0),
	}
	file, target := addFileFlag(cmd, "configuration"), addTargetFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&a.watch, "watch", false, "roll out node by node, and stop if a node is not ready or has more problems than before")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would be written, and the order of the nodes")
	f.BoolVar(&a.abort, "abort", false, "undo a rollout that stopped: restore the previous configuration of its nodes")
	f.BoolVar(&a.skip, "skip-unreachable", false, "skip nodes whose agents do not answer; these nodes apply the configuration at the end")
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

// apply runs 'config apply' without --abort: it rolls out the file, writes it at once, or prints what it would write.
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
		return &fleet.UnreachableError{Reason: fmt.Sprintf("the agents of %d nodes do not answer; the first is node %s: %s\n"+
			"Nothing was written. Use --skip-unreachable to skip these nodes; they apply the configuration when all other nodes have it", len(ch.Skipped), n.Name, n.WhyUnreachable())}
	}
	if a.watch {
		if begun > 0 {
			r.Progress("continuing: %d of %d nodes have the new configuration", begun, len(ch.Nodes))
		}
		if err := r.Run(cmd.Context()); err != nil {
			return err
		}
		r.Progress("done: %d nodes have the new configuration", len(ch.Nodes))
		return nil
	}
	if begun > 0 {
		return fmt.Errorf("an unfinished rollout of this configuration has changed %d nodes: continue with --watch, or restore the old configuration with --abort", begun)
	}
	if err := ch.Apply(cmd.Context()); err != nil {
		return err
	}
	r.Progress("wrote ConfigMap %s/%s; %d nodes apply it now: 'kubectl trimtab nodes' shows these nodes", ch.Maps.Namespace, ch.Target.Name(), len(ch.Nodes))
	return nil
}

// dryRun prints what config apply would write, and the nodes in the order of the rollout. The parameter begun is the
// number of nodes that already have the configuration.
func dryRun(cmd *cobra.Command, ch *fleet.Change, watch bool, begun int) error {
	w := cmd.OutOrStdout()
	if err := cli.Write(w, configDiff(ch)); err != nil {
		return err
	}
	var names []string
	for _, n := range ch.Nodes {
		names = append(names, n.Name)
	}
	how := "all at once"
	if watch {
		how = "one node after another"
	}
	fmt.Fprintf(w, "the configuration would be applied to %d nodes, %s: %s\n", len(names), how, strings.Join(names, " "))
	if begun > 0 {
		fmt.Fprintf(w, "%d of these nodes already have this configuration\n", begun)
	}
	for _, n := range ch.Skipped {
		fmt.Fprintf(w, "the agent of node %s does not answer: %s\n", n.Name, n.WhyUnreachable())
	}
	fmt.Fprintln(w, "nothing was written (--dry-run)")
	return nil
}

// abort restores the ConfigMaps that an unfinished rollout has changed, and prints the nodes.
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
