package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trimtab/trimtab/internal/cli"
	"github.com/trimtab/trimtab/internal/fleet"
)

// nodeRow is the row of a node in the table of nodes.
type nodeRow struct {
	Node       string `json:"node"`
	Agent      string `json:"agent,omitempty"`      // namespace/pod
	Version    string `json:"version,omitempty"`    // the agent's version
	Attachment string `json:"attachment,omitempty"` // the agent's attachments to the runtime, with their states
	Ready      bool   `json:"ready"`                // the agent's pod is ready
	Containers int    `json:"containers"`           // the number of containers that the agent knows
	// Problems is the number of decided values that are not in force plus the number of refused requests.
	Problems int `json:"problems"`
	// ConfigGen is the number of configurations that were in force since the agent's start.
	ConfigGen uint64    `json:"configGeneration,omitempty"`
	Started   time.Time `json:"started,omitzero"` // when the agent started
	// Reason is why the plugin could not query the agent, or why the agent did not answer.
	Reason string `json:"reason,omitempty"`
	// Note is the fault that the agent reports about itself; "" if it reports no fault.
	Note string `json:"note,omitempty"`

	unreachable bool // the node has a pod of an agent, but the agent did not answer
}

// newNodes returns the command nodes, which prints a line for each node and its agent.
func newNodes(p *plugin) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "Show all nodes and their agents, one line each",
		Long: `Queries the agents of all nodes and prints a line for each node. The line has the agent's
version, its attachment to the runtime, whether its pod is ready, and the number of its
containers. Then come the number of problems (values that are not in force and requests
that were refused), the number of configurations since the agent's start, and its age.
For a node without an agent, or with an agent that does not answer, the line has the
reason. If an agent does not answer, the exit code is 3.`,
		Example: "  kubectl trimtab nodes\n  kubectl trimtab nodes -o json | jq '.items[] | select(.problems > 0).node'",
		Args:    cli.Arguments(0),
	}
	out := cli.AddFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, found, err := p.connectToAll(cmd.Context())
		if err != nil {
			return err
		}
		if found.ListNodesError != nil {
			warn(cmd, "nodes without an agent are not shown: %v", found.ListNodesError)
		}
		rows := fleet.ForEachNode(cmd.Context(), found.Nodes, p.maxParallel, func(ctx context.Context, n fleet.Node) nodeRow {
			return p.queryNode(ctx, c, n)
		}, showProgress(cmd, len(found.Nodes)))
		w := cmd.OutOrStdout()
		if err := out.PrintList(w, "AgentList", rows, func() error { return writeTable(w, nodeTableHeader, nodeCells(rows)) }); err != nil {
			return err
		}
		for _, v := range versionDifferences(rows) {
			warn(cmd, "%s", v)
		}
		if n := countIf(rows, func(r nodeRow) bool { return r.unreachable }); n > 0 {
			return &fleet.UnreachableError{Reason: fmt.Sprintf("%d of %d agents did not answer", n, countIf(rows, func(r nodeRow) bool { return r.Agent != "" }))}
		}
		return nil
	}
	return cmd
}

// queryNode asks the agent of a node for its status, and returns the row of the node.
func (p *plugin) queryNode(ctx context.Context, c *fleet.Cluster, n fleet.Node) nodeRow {
	r := nodeRow{Node: n.Name, Reason: n.WhyUnreachable()}
	if n.Agent == nil {
		return r
	}
	r.Agent, r.Started = n.Agent.Namespace+"/"+n.Agent.Pod, n.Agent.Started
	if r.unreachable = r.Reason != ""; r.unreachable {
		return r
	}
	s, err := p.askStatus(ctx, c, n.Agent)
	if err != nil {
		r.Reason, r.unreachable = err.Error(), true
		return r
	}
	r.Version, r.Attachment, r.Containers, r.Problems, r.ConfigGen = s.Version, s.AttachmentStates(), len(s.Containers), s.Violations(), s.ConfigGen
	r.Ready, r.Note = n.Agent.Ready, s.Fault()
	// s.Started is when the agent's process started. If the agent is a systemd unit, the pod started at another time.
	if !s.Started.IsZero() {
		r.Started = s.Started
	}
	return r
}

// askStatus asks an agent for its status. It waits at most p.timeout.
func (p *plugin) askStatus(ctx context.Context, c *fleet.Cluster, a *fleet.Agent) (fleet.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return fleet.Ask[fleet.Status](ctx, c, a, nil, "status")
}

// nodeTableHeader has the titles of the columns in the table of nodes.
const nodeTableHeader = "NODE\tVERSION\tATTACHMENT\tREADY\tCONTAINERS\tPROBLEMS\tCONFIG\tAGE\tNOTE"

// nodeCells returns the cells of the table of nodes.
func nodeCells(rows []nodeRow) [][]string {
	var all [][]string
	for _, r := range rows {
		if r.Reason != "" {
			all = append(all, []string{r.Node, "", "", "", "", "", "", formatAge(r.Started), r.Reason})
			continue
		}
		ready := "no"
		if r.Ready {
			ready = "yes"
		}
		all = append(all, []string{
			r.Node, r.Version, r.Attachment, ready, strconv.Itoa(r.Containers), strconv.Itoa(r.Problems),
			strconv.FormatUint(r.ConfigGen, 10), formatAge(r.Started), r.Note,
		})
	}
	return all
}

// versionDifferences returns one sentence if the agents' versions differ, and one if no agent has the version of this
// plugin.
func versionDifferences(rows []nodeRow) []string {
	of := map[string]int{}
	var versions []string
	for _, r := range rows {
		if r.Version == "" {
			continue
		}
		if of[r.Version]++; of[r.Version] == 1 {
			versions = append(versions, r.Version)
		}
	}
	slices.Sort(versions)
	var all []string
	if len(versions) > 1 {
		var each []string
		for _, v := range versions {
			each = append(each, fmt.Sprintf("%d run %s", of[v], v))
		}
		all = append(all, "the agents' versions differ: "+strings.Join(each, ", "))
	}
	if own := cli.ThisBuild().Version; len(versions) > 0 && !slices.Contains(versions, own) {
		all = append(all, fmt.Sprintf("no agent has the version %s of this plugin: the plugin does not show data that newer agents add", own))
	}
	return all
}

// countIf returns the number of elements for which the function matches returns true.
func countIf[T any](all []T, matches func(T) bool) (n int) {
	for _, x := range all {
		if matches(x) {
			n++
		}
	}
	return n
}

// agentExitCode returns the exit code of the agent's program that err contains. It returns 0 if err contains no exit
// code.
func agentExitCode(err error) int {
	var exit *fleet.ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return exitOK
}
