package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
)

// newStatus returns the command status, which prints the status of a node's agent.
func newStatus(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status NODE",
		Short: "Show what the agent of a node does: attachment, CPUs, containers",
		Long: `Prints what 'trimtab status' prints on the node: the configuration, the attachment to
the runtime, which pod owns which CPUs, and one line for each container.`,
		Example: "  kubectl trimtab status worker-1\n  kubectl trimtab status worker-1 -o json | jq .unapplied",
		Args:    cli.Arguments(1, "NODE"),
	}
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.relay(cmd, args[0], nil, "status", "-o", out.String())
	}
	return cmd
}

// newExplain returns the command explain, which prints why the containers of a pod have their values.
func newExplain(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain pod/NAME",
		Short: "Show why the containers of a pod have their values",
		Long: `Finds the node of a pod and prints what 'trimtab explain' prints on that node: what the
containers requested and got. For each value it shows the hook that decided the value,
the source of the value, and whether the value is in force or why not.`,
		Example: "  kubectl trimtab explain pod/db -n shop\n  kubectl trimtab explain pod/db -n shop -c postgres -o yaml",
		Args:    cli.Arguments(1, "pod/NAME"),
	}
	container := cmd.Flags().StringP("container", "c", "", "show only this container")
	out := cli.AddFormat(cmd, "table", "wide", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := podName(args[0])
		if err != nil {
			return err
		}
		c, namespace, err := p.connect()
		if err != nil {
			return err
		}
		node, err := c.PodNode(cmd.Context(), namespace, name)
		if err != nil {
			return err
		}
		which := namespace + "/" + name
		if *container != "" {
			which += "/" + *container
		}
		return p.relay(cmd, node, nil, "explain", which, "-o", out.String())
	}
	return cmd
}

// podName returns NAME if the argument is NAME, pod/NAME, pods/NAME or po/NAME. kubectl accepts the same forms.
func podName(s string) (string, error) {
	kind, name, has := strings.Cut(s, "/")
	if !has {
		return s, nil
	}
	switch kind {
	case "pod", "pods", "po":
		if name != "" && !strings.Contains(name, "/") {
			return name, nil
		}
	}
	return "", &usageError{fmt.Errorf("%q is not pod/NAME; give the namespace with -n", s)}
}

// relay runs the agent's program on a node, passes stdin to the program, and prints the program's output. If the
// program fails, the error contains the program's exit code.
func (p *plugin) relay(cmd *cobra.Command, node string, stdin []byte, args ...string) error {
	c, a, err := p.connectToNode(cmd.Context(), node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), p.timeout)
	defer cancel()
	out, err := c.Output(ctx, a, stdin, args...)
	if last := args[len(args)-1]; last != "json" && last != "yaml" { // the output is text for people
		out = []byte(cleanLines(string(out)))
	}
	if wrong := cli.Write(cmd.OutOrStdout(), out); wrong != nil {
		return wrong
	}
	return withNodeName(node, a, err)
}

// withNodeName adds the name of the node to an error that contains the exit code of the agent's program. If this is
// the exit code of a usage error, the message also says that the agent may be older than the plugin. withNodeName
// returns errors without an exit code unchanged.
func withNodeName(node string, a *fleet.Agent, err error) error {
	switch agentExitCode(err) {
	case exitOK:
		return err
	case exitUsage:
		return fmt.Errorf("node %s: %w (an agent older than this plugin may not know the command; to list the agent's commands: "+
			"kubectl -n %s exec %s -c %s -- %s --help)", node, err, a.Namespace, a.Pod, fleet.Container, fleet.Program)
	}
	return fmt.Errorf("node %s: %w", node, err)
}

// newPlan returns the command plan, which prints the CPUs that new pods would get.
func newPlan(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan -f PODS.yaml [NODE]",
		Short: "Show where pods would be placed now, on one node or on each node",
		Long: `Asks the agents which CPUs the pods of a file would get now. With NODE, it prints what
'trimtab plan' prints on that node. Without NODE, it prints a line for each node: the CPUs
that the pods would get, the pods that the agent would refuse, and the number of running
containers that would get other CPUs. Nothing is placed or written.

The file has pods, lists of pods, or workloads (one pod of each); - is standard input.
With NODE, the exit code is 4 if the agent would refuse a pod. Without NODE, it is 4 if
each agent that answers would refuse at least one of the pods.`,
		Example: "  kubectl trimtab plan -f pods.yaml\n  kubectl get pod db -o yaml | kubectl trimtab plan -f - worker-1",
		Args:    cli.Arguments(0, "NODE"),
	}
	file := addFileFlag(cmd, "pods")
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := readInput(*file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return p.relay(cmd, args[0], text, "plan", "-", "-o", out.String())
		}
		return p.planAll(cmd, text, out)
	}
	return cmd
}

// nodePlan is a node and the answer of its agent: what new pods or a new configuration would change.
type nodePlan struct {
	Node   string      `json:"node"`
	Plan   *fleet.Plan `json:"outlook,omitempty"` // the answer of the node's agent; nil if there is none
	Reason string      `json:"reason,omitempty"`  // the error message if Plan is nil
	code   int         // this plugin's exit code for the error
}

// planAll asks the agents of all nodes for a plan of the pods in text, and prints a line for each node.
func (p *plugin) planAll(cmd *cobra.Command, text []byte, out *cli.Format) error {
	c, found, err := p.connectToAll(cmd.Context())
	if err != nil {
		return err
	}
	all := fleet.ForEachNode(cmd.Context(), found.NodesWithAgent(), p.maxParallel, func(ctx context.Context, n fleet.Node) nodePlan {
		ctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		o, err := fleet.Ask[fleet.Plan](ctx, c, n.Agent, text, "plan", "-")
		var exit *fleet.ExitError
		if err == nil || errors.As(err, &exit) && len(o.Rejected) > 0 {
			return nodePlan{Node: n.Name, Plan: &o}
		}
		return nodePlan{Node: n.Name, Reason: err.Error(), code: exitCode(err, true)}
	}, showProgress(cmd, len(found.Nodes)))
	w := cmd.OutOrStdout()
	if err := out.Print(w, all, func() error {
		return writeTable(w, "NODE\tPODS GET\tREFUSED\tMOVES\tNOTE", nodePlanRows(all))
	}); err != nil {
		return err
	}
	return refusalOf(all)
}

// refusalOf returns nil if at least one node would accept all pods. Otherwise it returns a *refusalError if at least
// one node would refuse a pod. If no node has a plan, it returns the error of an agent.
func refusalOf(all []nodePlan) error {
	refused, wrong := false, ""
	for _, x := range all {
		switch {
		case x.Plan == nil && x.code != exitUnreachable:
			wrong = x.Reason
		case x.Plan == nil:
		case len(x.Plan.Rejected) == 0:
			return nil
		default:
			refused = true
		}
	}
	switch {
	case refused:
		return &refusalError{}
	case wrong != "":
		return errors.New(wrong)
	}
	return &fleet.UnreachableError{Reason: "no agent answered"}
}

// nodePlanRows returns the rows of the table that 'plan' prints: one for each node.
func nodePlanRows(all []nodePlan) [][]string {
	var rows [][]string
	for _, x := range all {
		if x.Plan == nil {
			rows = append(rows, []string{x.Node, "", "", "", x.Reason})
			continue
		}
		var get, why []string
		for _, c := range x.Plan.Containers {
			get = append(get, strings.TrimSuffix(c.Pod+"/"+c.Name, "/")+"="+c.CPUs)
		}
		for _, r := range x.Plan.Rejected {
			why = append(why, r.Pod+": "+r.Reason)
		}
		rows = append(rows, []string{
			x.Node, strings.Join(get, " "), fmt.Sprint(len(x.Plan.Rejected)), fmt.Sprint(len(x.Plan.Moves)), strings.Join(why, "; "),
		})
	}
	return rows
}

// readLimited reads an input file. It refuses files above 4 MiB, because an API server accepts only objects up to
// 1.5 MB.
func readLimited(in io.Reader) ([]byte, error) {
	const most = 4 << 20
	b, err := io.ReadAll(io.LimitReader(in, most+1))
	if len(b) > most {
		return nil, fmt.Errorf("the file has more than %d bytes", most)
	}
	return b, err
}
