package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

// Rollout applies a change node by node. It writes the new configuration of a node to the node's own ConfigMap, and
// waits until the agent has applied this configuration. Then it checks that the node is as healthy as before. After the
// last node, Rollout writes the target's ConfigMap, and restores the nodes' own ConfigMaps. These two steps change no
// node's configuration. A user can interrupt the rollout, because at any time each node has either the old or the new
// configuration. If the user runs the same command again, the rollout continues.
type Rollout struct {
	Cluster *Cluster
	Change  *Change
	// Pause is how long Run watches a node before it changes the next node. AgentTimeout is how long an agent may take
	// to apply a configuration, or to answer again after failed calls.
	Pause, AgentTimeout time.Duration
	// Timeout is how long an agent may take to answer one call.
	Timeout time.Duration
	// Progress is called with a message for each step.
	Progress func(text string, args ...any)
}

// IncompleteError is the error of an incomplete rollout.
type IncompleteError struct {
	Node     string // the node at which the rollout stopped; "" if it stopped after the last node
	Finished int    // the number of nodes with the new configuration
	Total    int    // the number of nodes of the rollout
	Err      error
}

// Error says what happened, what is in force and how to continue.
func (s *IncompleteError) Error() string {
	at := ""
	if s.Node != "" {
		at = " at node " + s.Node
	}
	return fmt.Sprintf("the rollout stopped%s: %v\n%d of %d nodes have the new configuration, the others have the previous one. "+
		"Run the same command again to continue, or with --abort to restore the previous configuration", at, s.Err, s.Finished, s.Total)
}

// Unwrap returns the cause.
func (s *IncompleteError) Unwrap() error { return s.Err }

// CountChanged counts the nodes that this rollout has already changed. It returns an error if another rollout is
// running.
func (r *Rollout) CountChanged() (int, error) {
	n := 0
	for name := range r.Change.Maps.objects {
		node, is := strings.CutPrefix(name, configmaps.NodeMapName(""))
		if !is {
			continue
		}
		s, has := r.Change.Maps.rolloutOf(node)
		switch {
		case has && s.Rollout != r.Change.id():
			return 0, fmt.Errorf("another rollout, of %s, has changed node %s: finish that rollout with its configuration file, or restore the old configuration with --abort", s.Target, node)
		case has:
			n++
		}
	}
	return n, nil
}

// Run rolls the change out.
func (r *Rollout) Run(ctx context.Context) error {
	if _, err := r.CountChanged(); err != nil {
		return err
	}
	if r.Change.Target.Node != "" {
		return r.applySingle(ctx)
	}
	if was := r.Change.Maps.Selector(r.Change.Target.Group); was != "" && was != r.Change.selector {
		return fmt.Errorf("--watch cannot change the selector of the group (now %q), because nodes that leave the group change at once; run the command without --watch", was)
	}
	texts, err := r.makeOverlays(ctx)
	if err != nil {
		return err
	}
	for i, n := range r.Change.Nodes {
		if err := r.applyNode(ctx, n, texts[i], i+1 == len(r.Change.Nodes)); err != nil {
			done, _ := r.CountChanged()
			if ctx.Err() != nil {
				err = errInterrupted
			}
			return &IncompleteError{Node: n.Name, Finished: done, Total: len(texts), Err: err}
		}
	}
	if err := r.finish(ctx); err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return &IncompleteError{Finished: len(texts), Total: len(texts), Err: err}
	}
	return nil
}

// makeOverlays makes the document for every node's own ConfigMap. Run calls it before it writes anything.
func (r *Rollout) makeOverlays(ctx context.Context) ([]string, error) {
	type answer struct {
		text string
		err  error
	}
	all := ForEachNode(ctx, r.Change.Nodes, 20, func(ctx context.Context, n Node) answer {
		text, err := r.overlay(ctx, n)
		return answer{text, err}
	}, nil)
	var (
		texts []string
		wrong error
	)
	for i, a := range all {
		texts = append(texts, a.text)
		if a.err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("node %s: %w", r.Change.Nodes[i].Name, a.err))
		}
	}
	if wrong != nil {
		return nil, fmt.Errorf("the rollout did not start, and no ConfigMap was changed:\n%w", wrong)
	}
	return texts, nil
}

// overlay makes the document for one node's own ConfigMap. It returns an error if the node's agent does not answer or
// does not read ConfigMaps.
func (r *Rollout) overlay(ctx context.Context, n Node) (string, error) {
	before, after, err := r.Change.layers(n)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	s, err := Ask[Status](ctx, r.Cluster, n.Agent, nil, "status")
	if err != nil {
		return "", err
	}
	if _, err := s.HasApplied("", ""); err != nil {
		return "", err
	}
	file, err := r.Cluster.ConfigText(ctx, n.Agent)
	if err != nil {
		return "", err
	}
	return Overlay(file, before, after)
}

// applyNode applies the new configuration on one node, and watches the node. text is the document for the node's own
// ConfigMap. last means that no other node follows, so that no pause is needed.
func (r *Rollout) applyNode(ctx context.Context, n Node, text string, last bool) error {
	m, name := r.Change.Maps, configmaps.NodeMapName(n.Name)
	before, begun := m.rolloutOf(n.Name)
	if !begun && r.Change.IsEmpty() {
		return nil // an earlier, interrupted run has already restored this node's own ConfigMap
	}
	if !begun {
		s, err := r.status(ctx, n)
		if err != nil {
			return err
		}
		if !s.Attached() {
			return errors.New("the agent is not attached to the runtime: " + s.AttachmentStates())
		}
		before = rolloutState{Rollout: r.Change.id(), Target: r.Change.Target.Name(), Violations: s.Violations(), Sum: checksum(text)}
		if m.objects[name] != nil {
			own := m.Text(name)
			before.Before = &own
		}
		if err := m.write(ctx, name, text, before.setAnnotation); err != nil {
			return err
		}
	}
	if err := r.awaitApplied(ctx, n, name); err != nil {
		return err
	}
	pause := r.Pause
	if begun || last {
		pause = 0
	}
	if err := r.watch(ctx, n, before.Violations, pause); err != nil {
		return err
	}
	r.Progress("node %s has the new configuration", n.Name)
	return nil
}

// finish writes the target's ConfigMap and restores the nodes' own ConfigMaps.
func (r *Rollout) finish(ctx context.Context) error {
	if !r.Change.IsEmpty() {
		if err := r.Change.Apply(ctx); err != nil {
			return err
		}
		r.Progress("ConfigMap %s has the new configuration for all nodes", r.Change.Target.Name())
	}
	for _, n := range r.Change.Nodes {
		// First wait until the agent has read the target's ConfigMap. Otherwise, after the restore of the node's own
		// ConfigMap, the agent would return to the old configuration.
		if err := r.awaitApplied(ctx, n, r.Change.Target.Name()); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if err := r.Change.Maps.restore(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// applySingle applies a change for a single node: it writes the node's own ConfigMap and watches the node.
func (r *Rollout) applySingle(ctx context.Context) error {
	if len(r.Change.Nodes) == 0 {
		return &UnreachableError{Reason: "node " + r.Change.Target.Node + ": " + r.Change.Skipped[0].WhyUnreachable()}
	}
	n := r.Change.Nodes[0]
	before, err := r.status(ctx, n)
	if err == nil {
		_, err = r.overlay(ctx, n) // checks that the agent reads ConfigMaps, and that the new configuration is valid
	}
	if err != nil {
		return fmt.Errorf("the rollout did not start, and no ConfigMap was changed: %w", err)
	}
	if err := r.Change.Apply(ctx); err != nil {
		return err
	}
	if err := r.awaitApplied(ctx, n, r.Change.Target.Name()); err != nil {
		return err
	}
	return r.watch(ctx, n, before.Violations(), r.Pause)
}

// errInterrupted is the error of a rollout that the user interrupted.
var errInterrupted = errors.New("interrupted")
