package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

// Target is the ConfigMap that a configuration is for. With neither group nor node it
// is that of all nodes.
type Target struct {
	Group, Node string
	// Selector of a group's nodes; "" keeps that of the group.
	Selector string
}

// Name is the ConfigMap's.
func (t Target) Name() string {
	switch {
	case t.Group != "":
		return configmaps.Group(t.Group)
	case t.Node != "":
		return configmaps.Node(t.Node)
	}
	return configmaps.Cluster
}

// Change is a new configuration for a target.
type Change struct {
	Target Target
	// File is what messages call the document, Text is it.
	File, Text string
	Maps       *Maps
	// Nodes are those of the target, in the order of the rollout.
	Nodes []Node
	// Skipped are nodes of the target whose agents cannot be asked.
	Skipped []Node

	selector string
}

// Plan reads what is there, and checks the document and for which nodes it is.
func (c *Cluster) Plan(ctx context.Context, t Target, file, text string, found Found) (*Change, error) {
	if err := check(file, text); err != nil {
		return nil, err
	}
	namespace, err := found.Namespace()
	if err != nil {
		return nil, err
	}
	ch := &Change{Target: t, File: file, Text: text}
	if ch.Maps, err = c.Maps(ctx, namespace); err != nil {
		return nil, err
	}
	if t.Group != "" {
		if ch.selector = t.Selector; ch.selector == "" {
			ch.selector = ch.Maps.Selector(t.Group)
		}
		if ch.selector == "" {
			return nil, &NotFound{fmt.Sprintf("there is no group %q in namespace %s yet: say with --selector which nodes are in it", t.Group, namespace)}
		}
	}
	if err := ch.choose(found); err != nil {
		return nil, err
	}
	return ch, nil
}

// choose finds the target's nodes.
func (ch *Change) choose(found Found) error {
	in := func(n Node) bool { return ch.Target.Node == "" || n.Name == ch.Target.Node }
	if ch.Target.Group != "" {
		s, err := labels.Parse(ch.selector)
		if err != nil {
			return &NotFound{fmt.Sprintf("--selector %q is no selector of labels: %v", ch.selector, err)}
		}
		if found.NoNodes != nil {
			return fmt.Errorf("find the group's nodes: %w", found.NoNodes)
		}
		in = func(n Node) bool { return s.Matches(labels.Set(n.Labels)) }
	}
	for _, n := range found.Nodes {
		switch {
		case !in(n):
		case n.Why() != "":
			ch.Skipped = append(ch.Skipped, n)
		default:
			ch.Nodes = append(ch.Nodes, n)
		}
	}
	if len(ch.Nodes)+len(ch.Skipped) == 0 {
		return &NotFound{"no node is meant: kubectl get nodes --show-labels shows names and labels"}
	}
	return nil
}

// Namespace is that of the agents' pods, where they read ConfigMaps.
func (f Found) Namespace() (string, error) {
	namespace := ""
	for _, n := range f.Nodes {
		if n.Agent == nil {
			continue
		}
		if namespace != "" && namespace != n.Agent.Namespace {
			return "", fmt.Errorf("agents are in namespaces %s and %s: choose one with --agent-namespace", namespace, n.Agent.Namespace)
		}
		namespace = n.Agent.Namespace
	}
	return namespace, nil
}

// Before is the text in force at the target's ConfigMap.
func (ch *Change) Before() string { return ch.Maps.Text(ch.Target.Name()) }

// Nothing says that the ConfigMap has the document already.
func (ch *Change) Nothing() bool {
	return ch.Before() == ch.Text && (ch.Target.Group == "" || ch.selector == ch.Maps.Selector(ch.Target.Group))
}

// id names this change, so that a rollout that was interrupted is known again.
func (ch *Change) id() string {
	return sum(ch.Target.Name() + "\n" + ch.selector + "\n" + ch.Text)
}

// sum is short and differs for different texts.
func sum(text string) string {
	all := sha256.Sum256([]byte(text))
	return hex.EncodeToString(all[:8])
}

// layers are a node's before and after the change.
func (ch *Change) layers(n Node) (before, after Layers, err error) {
	before, group, err := ch.Maps.Layers(n)
	if err != nil {
		return before, after, err
	}
	before.Node = ch.Maps.original(n)
	after = before
	switch {
	case ch.Target.Node != "":
		after.Node = ch.Text
	case ch.Target.Group != "":
		if group != "" && group != ch.Target.Name() {
			return before, after, fmt.Errorf("node %s is in the group of ConfigMap %s already: change the selector of one of them", n.Name, group)
		}
		after.Group = ch.Text
	default:
		after.Cluster = ch.Text
	}
	return before, after, nil
}

// File is the configuration file that a node's agent is started with, with its
// defaults filled in.
func (c *Cluster) File(ctx context.Context, a *Agent) (string, error) {
	args := []string{"config", "print", "-o", "yaml"}
	if a.Config != "" {
		args = append(args, a.Config)
	}
	out, err := c.Output(ctx, a, nil, args...)
	return string(out), err
}

// Effective returns the whole configuration that a node would have.
func (ch *Change) Effective(n Node, file string) (string, error) {
	_, after, err := ch.layers(n)
	if err != nil {
		return "", err
	}
	return after.print(file)
}

// Apply writes the target's ConfigMap: all its nodes take it at once.
func (ch *Change) Apply(ctx context.Context) error {
	return ch.Maps.put(ctx, ch.Target.Name(), ch.Text, func(o *unstructured.Unstructured) {
		if ch.Target.Group == "" {
			return
		}
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[configmaps.Selector] = ch.selector
		o.SetAnnotations(notes)
	})
}
