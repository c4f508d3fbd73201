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

// Target is the ConfigMap that a change is for: the ConfigMap of Group, or of Node, or of all nodes if both fields are
// empty.
type Target struct {
	Group, Node string
	// Selector is the new node selector of Group; "" means that the group keeps its selector.
	Selector string
}

// Name returns the name of the ConfigMap.
func (t Target) Name() string {
	switch {
	case t.Group != "":
		return configmaps.GroupMapName(t.Group)
	case t.Node != "":
		return configmaps.NodeMapName(t.Node)
	}
	return configmaps.ClusterMapName
}

// Change is a new configuration for a target.
type Change struct {
	Target Target
	// File is the name of the new configuration document in messages. Text is the content of the document.
	File, Text string
	Maps       *ConfigMaps
	// Nodes are the target's nodes, in the order of the rollout.
	Nodes []Node
	// Skipped are nodes of the target whose agents cannot be called.
	Skipped []Node

	selector string // the node selector of the target's group after the change; "" if the target is not a group
}

// PlanChange validates the document in text, reads the ConfigMaps, and finds the target's nodes.
func (c *Cluster) PlanChange(ctx context.Context, t Target, file, text string, found FindResult) (*Change, error) {
	if err := validate(file, text); err != nil {
		return nil, err
	}
	namespace, err := found.Namespace()
	if err != nil {
		return nil, err
	}
	ch := &Change{Target: t, File: file, Text: text}
	if ch.Maps, err = c.ReadConfigMaps(ctx, namespace); err != nil {
		return nil, err
	}
	if t.Group != "" {
		if ch.selector = t.Selector; ch.selector == "" {
			ch.selector = ch.Maps.Selector(t.Group)
		}
		if ch.selector == "" {
			return nil, &NotFoundError{fmt.Sprintf("there is no group %q in namespace %s yet: select its nodes with --selector", t.Group, namespace)}
		}
	}
	if err := ch.chooseNodes(found); err != nil {
		return nil, err
	}
	return ch, nil
}

// chooseNodes finds the target's nodes.
func (ch *Change) chooseNodes(found FindResult) error {
	in := func(n Node) bool { return ch.Target.Node == "" || n.Name == ch.Target.Node }
	if ch.Target.Group != "" {
		s, err := labels.Parse(ch.selector)
		if err != nil {
			return &NotFoundError{fmt.Sprintf("--selector %q is not a label selector: %v", ch.selector, err)}
		}
		if found.ListNodesError != nil {
			return fmt.Errorf("find the group's nodes: %w", found.ListNodesError)
		}
		in = func(n Node) bool { return s.Matches(labels.Set(n.Labels)) }
	}
	for _, n := range found.Nodes {
		switch {
		case !in(n):
		case n.WhyUnreachable() != "":
			ch.Skipped = append(ch.Skipped, n)
		default:
			ch.Nodes = append(ch.Nodes, n)
		}
	}
	if len(ch.Nodes)+len(ch.Skipped) == 0 {
		return &NotFoundError{"no node matches: kubectl get nodes --show-labels lists names and labels"}
	}
	return nil
}

// Namespace returns the namespace of the agents' pods. The agents read the ConfigMaps of this namespace.
func (f FindResult) Namespace() (string, error) {
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

// Before returns the present configuration in the target's ConfigMap.
func (ch *Change) Before() string { return ch.Maps.Text(ch.Target.Name()) }

// IsEmpty reports whether the target's ConfigMap already has the new configuration and the new selector.
func (ch *Change) IsEmpty() bool {
	return ch.Before() == ch.Text && (ch.Target.Group == "" || ch.selector == ch.Maps.Selector(ch.Target.Group))
}

// id identifies this change, so that the program recognises an interrupted rollout.
func (ch *Change) id() string {
	return checksum(ch.Target.Name() + "\n" + ch.selector + "\n" + ch.Text)
}

// checksum returns a short checksum of a text.
func checksum(text string) string {
	all := sha256.Sum256([]byte(text))
	return hex.EncodeToString(all[:8])
}

// layers returns the configurations in a node's ConfigMaps before and after the change.
func (ch *Change) layers(n Node) (before, after Layers, err error) {
	before, group, err := ch.Maps.Layers(n)
	if err != nil {
		return before, after, err
	}
	before.Node = ch.Maps.originalText(n)
	after = before
	switch {
	case ch.Target.Node != "":
		after.Node = ch.Text
	case ch.Target.Group != "":
		if group != "" && group != ch.Target.Name() {
			return before, after, fmt.Errorf("node %s is already in the group of ConfigMap %s: change the selector of one of the two groups", n.Name, group)
		}
		after.Group = ch.Text
	default:
		after.Cluster = ch.Text
	}
	return before, after, nil
}

// ConfigText returns the configuration of an agent's own file, together with the defaults of missing keys.
func (c *Cluster) ConfigText(ctx context.Context, a *Agent) (string, error) {
	args := []string{"config", "print", "-o", "yaml"}
	if a.Config != "" {
		args = append(args, a.Config)
	}
	out, err := c.Output(ctx, a, nil, args...)
	return string(out), err
}

// Effective returns the whole configuration of a node after the change.
func (ch *Change) Effective(n Node, file string) (string, error) {
	_, after, err := ch.layers(n)
	if err != nil {
		return "", err
	}
	return after.effectiveText(file)
}

// Apply writes the target's ConfigMap. This changes the configuration of all the target's nodes at the same time.
func (ch *Change) Apply(ctx context.Context) error {
	return ch.Maps.write(ctx, ch.Target.Name(), ch.Text, func(o *unstructured.Unstructured) {
		if ch.Target.Group == "" {
			return
		}
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes[configmaps.SelectorAnnotation] = ch.selector
		o.SetAnnotations(notes)
	})
}
