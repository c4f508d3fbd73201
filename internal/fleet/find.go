package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Agent is an agent's pod.
type Agent struct {
	Namespace, Pod string
	// Started is when the pod's container started; zero if the container does not run.
	Started time.Time
	// Ready means that the kubelet's readiness probe succeeds.
	Ready bool
	// WhyDown is why kubectl trimtab cannot run the agent's program in the pod; "" if it can.
	WhyDown string
	// Config is the configuration file in the arguments of the container; "" for none.
	Config string
	// RunsAsUnit means that the agent runs as a systemd unit, outside of the pod. The pod mounts the agent's status
	// socket.
	RunsAsUnit bool
}

// Node is a node of the cluster and its agent.
type Node struct {
	Name   string
	Labels map[string]string
	// Agent is nil for a node without a pod of Trimtab.
	Agent *Agent
	// Unschedulable means that the node is cordoned.
	Unschedulable bool
}

// FindResult is what Find returns.
type FindResult struct {
	Nodes []Node // sorted by name
	// ListNodesError is the reason why Nodes has only nodes with an agent; nil if Nodes has all nodes.
	ListNodesError error
}

// Find returns the nodes of the cluster with their agents. For a user who may not list
// nodes, it returns only nodes with an agent.
func (c *Cluster) Find(ctx context.Context) (FindResult, error) {
	all, err := c.list(ctx, pods, c.agentNamespace, Selector)
	if err != nil {
		return FindResult{}, err
	}
	by := map[string]Node{}
	for _, u := range all {
		p, err := pod(u)
		if err != nil {
			return FindResult{}, err
		}
		a, ours := agentOf(p)
		if node := p.Spec.NodeName; ours && node != "" {
			by[node] = Node{Name: node, Agent: preferredAgent(by[node].Agent, a)}
		}
	}
	if len(by) == 0 {
		return FindResult{}, c.noAgentsError(len(all))
	}
	listed, err := c.list(ctx, nodes, "", "")
	for _, u := range listed {
		n := by[u.GetName()]
		cordoned, _ := u.Object["spec"].(map[string]any)
		n.Unschedulable, _ = cordoned["unschedulable"].(bool)
		n.Name, n.Labels = u.GetName(), u.GetLabels()
		by[n.Name] = n
	}
	return FindResult{Nodes: slices.SortedFunc(maps.Values(by), func(a, b Node) int { return strings.Compare(a.Name, b.Name) }), ListNodesError: err}, nil
}

// noAgentsError returns an error with advice for a cluster in which no node has an agent's pod. labelled is the number
// of pods with the agents' label.
func (c *Cluster) noAgentsError(labelled int) error {
	where := "in any namespace"
	if c.agentNamespace != "" {
		where = "in namespace " + c.agentNamespace
	}
	if labelled > 0 {
		return &NotFoundError{fmt.Sprintf("none of the %d pods labelled %s %s has a node: kubectl get pods -A -l %s says why", labelled, Selector, where, Selector)}
	}
	return &NotFoundError{fmt.Sprintf("found no pod labelled %s %s: is the chart installed? (helm list -A; docs/install.md)", Selector, where)}
}

// Node returns the node with the given name.
func (f FindResult) Node(name string) (Node, error) {
	for _, n := range f.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	if f.ListNodesError != nil {
		return Node{}, &NotFoundError{fmt.Sprintf("node %q has no pod of an agent", name)}
	}
	return Node{}, &NotFoundError{fmt.Sprintf("there is no node %q: kubectl get nodes lists them", name)}
}

// NodesWithAgent returns the nodes with an agent whose program can be run.
func (f FindResult) NodesWithAgent() []Node {
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n Node) bool { return n.WhyUnreachable() != "" })
}

// WhyUnreachable returns the reason why kubectl trimtab cannot call a node's agent; "" if it can.
func (n Node) WhyUnreachable() string {
	if n.Agent == nil {
		return "no agent: the DaemonSet has no pod here"
	}
	return n.Agent.WhyDown
}

// preferredAgent returns the agent to use if a node has two pods. This happens during an update: one pod ends while the
// other starts.
func preferredAgent(a, b *Agent) *Agent {
	if a == nil {
		return b
	}
	rank := func(a *Agent) int {
		switch {
		case a.WhyDown != "":
			return 0
		case !a.Ready:
			return 1
		}
		return 2
	}
	if cmp.Or(cmp.Compare(rank(a), rank(b)), a.Started.Compare(b.Started)) >= 0 {
		return a
	}
	return b
}

// agentOf makes an Agent from a pod. The bool is false for a pod without the agent's container.
func agentOf(p corev1.Pod) (*Agent, bool) {
	at := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == Container })
	if at < 0 {
		return nil, false
	}
	args := p.Spec.Containers[at].Args
	a := &Agent{Namespace: p.Namespace, Pod: p.Name, Config: configOf(args), RunsAsUnit: len(args) > 0 && args[0] == IdleCommand}
	for _, c := range p.Status.Conditions {
		a.Ready = a.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	a.WhyDown = "pod " + p.Name + " is " + cmp.Or(string(p.Status.Phase), "not started yet")
	for _, s := range p.Status.ContainerStatuses {
		if s.Name != Container {
			continue
		}
		switch {
		case s.State.Running != nil:
			a.Started, a.WhyDown = s.State.Running.StartedAt.Time, ""
		case s.State.Waiting != nil:
			a.WhyDown = strings.TrimSpace("pod " + p.Name + " waits: " + s.State.Waiting.Reason + " " + s.State.Waiting.Message)
		case s.State.Terminated != nil:
			a.WhyDown = fmt.Sprintf("pod %s ended with exit code %d: %s", p.Name, s.State.Terminated.ExitCode, s.State.Terminated.Reason)
		}
	}
	if p.DeletionTimestamp != nil {
		a.WhyDown = "pod " + p.Name + " is being deleted"
	}
	return a, true
}

// configOf returns the value of --config in a container's arguments.
func configOf(args []string) string {
	for i, a := range args {
		if value, joined := strings.CutPrefix(a, "--config="); joined {
			return value
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
