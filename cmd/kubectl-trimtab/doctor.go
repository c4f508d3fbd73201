package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
	"github.com/trimtab/trimtab/internal/report/term"
)

// finding is a problem of a node.
type finding struct {
	Node  string `json:"node"`
	Check string `json:"check"`         // the name of the check that found the problem
	Found string `json:"found"`         // what the check found
	Why   string `json:"why,omitempty"` // why the problem matters
	Do    string `json:"do,omitempty"`  // what the user can do about the problem
}

// newDoctor returns the command doctor, which prints the problems of nodes.
func newDoctor(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [NODE]",
		Short: "Show the problems of all nodes, and what to do about each",
		Long: `Runs 'trimtab doctor' in the agents' pods and prints the problems, with what to do about
each. An agent that does not answer, an agent that is not ready and a node without an
agent are problems too. In a pod, doctor can check only files that are mounted into the
pod. To check other files of a node, run 'trimtab doctor' on the node. For an agent that
runs as a systemd unit, doctor checks only the configuration and the agent's own report.

The exit code is 1 if there is a problem.`,
		Example: "  kubectl trimtab doctor\n  kubectl trimtab doctor worker-1 -o yaml",
		Args:    cli.Arguments(0, "NODE"),
	}
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, found, err := p.connectToAll(cmd.Context())
		if err != nil {
			return err
		}
		if len(args) == 1 {
			n, err := found.Node(args[0])
			if err != nil {
				return err
			}
			found.Nodes = []fleet.Node{n}
		}
		if found.ListNodesError != nil {
			warn(cmd, "nodes without an agent are not checked: %v", found.ListNodesError)
		}
		lists := fleet.ForEachNode(cmd.Context(), found.Nodes, p.maxParallel, func(ctx context.Context, n fleet.Node) []finding {
			return p.findProblems(ctx, c, n)
		}, showProgress(cmd, len(found.Nodes)))
		return printProblems(cmd, out, lists)
	}
	return cmd
}

// The names of two checks of 'trimtab doctor'. If agentCheck is ok, the agent is attached to the runtime. A problem of
// runtimeCheck then does not count, because the agent's pod may not mount the CRI socket that runtimeCheck needs.
const (
	runtimeCheck = "runtime"
	agentCheck   = "agent"
)

// countsWithoutAgent reports whether a problem of a check counts if the node's agent is a systemd unit. The program
// doctor then ran in a pod without an agent, and most checks saw the cgroups, directories and sockets of this pod
// instead of the node's. Only checks of the agent's report and of the agent's configuration file are right then.
func countsWithoutAgent(check string) bool {
	switch check {
	case agentCheck, "attachment", "configuration", "nri timeouts", "pod specs":
		return true
	}
	return false
}

// printProblems prints the problems of all nodes. It returns an error if there are problems.
func printProblems(cmd *cobra.Command, out *cli.Format, lists [][]finding) error {
	all := []finding{}
	ill := 0
	for _, l := range lists {
		all = append(all, l...)
		if len(l) > 0 {
			ill++
		}
	}
	w := cmd.OutOrStdout()
	err := out.Print(w, all, func() error {
		for _, f := range all {
			fmt.Fprintf(w, "%s  %s: %s\n", term.Clean(f.Node), term.Clean(f.Check), term.Clean(f.Found))
			for _, line := range [][2]string{{"why", f.Why}, {"do", f.Do}} {
				if line[1] != "" {
					fmt.Fprintf(w, "    %s: %s\n", line[0], term.Clean(line[1]))
				}
			}
		}
		if len(all) == 0 {
			fmt.Fprintf(w, "no problems on %d nodes\n", len(lists))
		}
		return nil
	})
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("%d problems on %d of %d nodes", len(all), ill, len(lists))
	}
	return err
}

// findProblems runs doctor on a node and returns the problems.
func (p *plugin) findProblems(ctx context.Context, c *fleet.Cluster, n fleet.Node) []finding {
	if why := n.WhyUnreachable(); why != "" {
		return []finding{{Node: n.Name, Check: "agent", Found: why}}
	}
	args := []string{"doctor"}
	if n.Agent.Config != "" {
		args = append(args, "--config", n.Agent.Config)
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	r, err := fleet.Ask[fleet.Report](ctx, c, n.Agent, nil, args...)
	if err != nil && len(r.Checks) == 0 {
		return []finding{{
			Node: n.Name, Check: "agent", Found: err.Error(),
			Do: fmt.Sprintf("kubectl -n %s logs %s -c %s", n.Agent.Namespace, n.Agent.Pod, fleet.Container),
		}}
	}
	var all []finding
	for _, k := range r.Checks {
		if n.Agent.RunsAsUnit && !countsWithoutAgent(k.Name) {
			continue
		}
		if k.Result == "problem" && (k.Name != runtimeCheck || !r.OK(agentCheck)) {
			all = append(all, finding{Node: n.Name, Check: k.Name, Found: k.Found, Why: k.Why, Do: k.Do})
		}
	}
	if len(all) == 0 && !n.Agent.Ready {
		all = append(all, finding{
			Node: n.Name, Check: "ready", Found: "pod " + n.Agent.Pod + " is not ready",
			Do: fmt.Sprintf("kubectl trimtab status %s; kubectl -n %s describe pod %s", n.Name, n.Agent.Namespace, n.Agent.Pod),
		})
	}
	return all
}
