package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

// rolling is the annotation of a node's ConfigMap while a rollout has it: what it was
// before, and for which rollout.
const rolling = "trimtab.io/rollout"

// stage is the value of the annotation.
type stage struct {
	// Rollout is the id of the change, Target the ConfigMap that it is for.
	Rollout string `json:"rollout"`
	Target  string `json:"target"`
	// Before is the text that the node's own ConfigMap had; nil for none.
	Before *string `json:"before,omitempty"`
	// Violations of the node before the rollout.
	Violations int `json:"violations"`
	// Sum is of the text that the rollout wrote.
	Sum string `json:"sum"`
}

// staged returns the stage of a node; false for a node that no rollout has.
func (m *Maps) staged(node string) (stage, bool) {
	var s stage
	text := m.annotation(configmaps.Node(node), rolling)
	if text == "" {
		return s, false
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		s.Rollout = "unknown"
	}
	return s, true
}

// original is the text of a node's own ConfigMap without what a rollout put there.
func (m *Maps) original(n Node) string {
	s, has := m.staged(n.Name)
	switch {
	case !has:
		return m.Text(configmaps.Node(n.Name))
	case s.Before != nil:
		return *s.Before
	}
	return ""
}

// Rollout puts a change in force node by node. It writes each node's own ConfigMap with
// what the node will have in the end, waits until its agent has taken it, and looks
// whether the node is as well as before. When all nodes have it, it writes the target's
// ConfigMap, which changes no node any more, and takes the nodes' back. Between any two
// steps each node has the old configuration or the new one, so it can be interrupted at
// any moment; the same change goes on where it stopped.
type Rollout struct {
	Cluster *Cluster
	Change  *Change
	// Pause is how long a node is watched before the next, Patience how long an agent
	// may take to take a configuration.
	Pause, Patience time.Duration
	// Timeout is how long an agent may take to answer.
	Timeout time.Duration
	// Say is called for each step.
	Say func(text string, args ...any)
}

// Stopped is the error of a rollout that did not come to its end.
type Stopped struct {
	Node string // where; "" for none in particular
	Done int
	Of   int
	Err  error
}

// Error says what happened, what is in force and how to go on.
func (s *Stopped) Error() string {
	at := ""
	if s.Node != "" {
		at = " at node " + s.Node
	}
	return fmt.Sprintf("the rollout stopped%s: %v\n%d of %d nodes have the new configuration, the others the one before. "+
		"Run the same command again to go on, or with --abort to take it back", at, s.Err, s.Done, s.Of)
}

// Unwrap returns the cause.
func (s *Stopped) Unwrap() error { return s.Err }

// Begun counts the nodes that this rollout has already; an error says that another one
// is under way.
func (r *Rollout) Begun() (int, error) {
	n := 0
	for name := range r.Change.Maps.objects {
		node, is := strings.CutPrefix(name, configmaps.Node(""))
		if !is {
			continue
		}
		s, has := r.Change.Maps.staged(node)
		switch {
		case has && s.Rollout != r.Change.id():
			return 0, fmt.Errorf("another rollout, of %s, has node %s: finish it with its own file, or take it back with --abort", s.Target, node)
		case has:
			n++
		}
	}
	return n, nil
}

// Run rolls the change out.
func (r *Rollout) Run(ctx context.Context) error {
	if _, err := r.Begun(); err != nil {
		return err
	}
	if r.Change.Target.Node != "" {
		return r.single(ctx)
	}
	if was := r.Change.Maps.Selector(r.Change.Target.Group); was != "" && was != r.Change.selector {
		return fmt.Errorf("the group has the selector %q: with another one, nodes that leave it change at once; apply that without --watch", was)
	}
	texts, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	for i, n := range r.Change.Nodes {
		if err := r.node(ctx, n, texts[i], i+1 == len(r.Change.Nodes)); err != nil {
			done, _ := r.Begun()
			if ctx.Err() != nil {
				err = errInterrupted
			}
			return &Stopped{Node: n.Name, Done: done, Of: len(texts), Err: err}
		}
	}
	if err := r.finish(ctx); err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return &Stopped{Done: len(texts), Of: len(texts), Err: err}
	}
	return nil
}

// prepare makes every node's document before anything is written.
func (r *Rollout) prepare(ctx context.Context) ([]string, error) {
	type answer struct {
		text string
		err  error
	}
	all := Each(ctx, r.Change.Nodes, 20, func(ctx context.Context, n Node) answer {
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
		return nil, fmt.Errorf("nothing is written:\n%w", wrong)
	}
	return texts, nil
}

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
	if _, err := s.Takes("", ""); err != nil {
		return "", err
	}
	file, err := r.Cluster.File(ctx, n.Agent)
	if err != nil {
		return "", err
	}
	return Overlay(file, before, after)
}

// node puts the new configuration in force on a node, and watches it.
func (r *Rollout) node(ctx context.Context, n Node, text string, last bool) error {
	m, name := r.Change.Maps, configmaps.Node(n.Name)
	before, begun := m.staged(n.Name)
	if !begun && r.Change.Nothing() {
		return nil // an interrupted run has come to its end on this node
	}
	if !begun {
		s, err := r.status(ctx, n)
		if err != nil {
			return err
		}
		if !s.Attached() {
			return errors.New("the agent is not attached to the runtime: " + s.Attachment())
		}
		before = stage{Rollout: r.Change.id(), Target: r.Change.Target.Name(), Violations: s.Violations(), Sum: sum(text)}
		if m.objects[name] != nil {
			own := m.Text(name)
			before.Before = &own
		}
		if err := m.put(ctx, name, text, before.mark); err != nil {
			return err
		}
	}
	if err := r.taken(ctx, n, name); err != nil {
		return err
	}
	pause := r.Pause
	if begun || last {
		pause = 0
	}
	if err := r.watch(ctx, n, before.Violations, pause); err != nil {
		return err
	}
	r.Say("node %s has it", n.Name)
	return nil
}

func (s stage) mark(o *unstructured.Unstructured) {
	text, err := json.Marshal(s)
	if err != nil {
		return // of strings and numbers: does not happen
	}
	notes := o.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[rolling] = string(text)
	o.SetAnnotations(notes)
}

// watch looks at a node for a while, at least once, and returns at once how it is worse
// than before.
func (r *Rollout) watch(ctx context.Context, n Node, violations int, pause time.Duration) error {
	end := time.Now().Add(pause)
	for {
		if err := r.well(ctx, n, violations); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
}

// well says how a node is worse than before.
func (r *Rollout) well(ctx context.Context, n Node, violations int) error {
	s, err := r.status(ctx, n)
	switch {
	case err != nil:
		return err
	case !s.Attached():
		return errors.New("unready: the agent is not attached to the runtime any more: " + s.Attachment())
	case s.Violations() > violations:
		return fmt.Errorf("%d values and requests are not in force, %d before: kubectl trimtab status %s", s.Violations(), violations, n.Name)
	}
	ready, err := r.Cluster.ready(ctx, n.Agent)
	if err == nil && !ready {
		err = fmt.Errorf("unready: pod %s/%s is not ready", n.Agent.Namespace, n.Agent.Pod)
	}
	return err
}

// status asks an agent for its state. One answer that is lost stops no rollout: it asks
// again while there is patience.
func (r *Rollout) status(ctx context.Context, n Node) (Status, error) {
	late := time.Now().Add(r.Patience)
	for {
		s, err := r.ask(ctx, n)
		var lost *Unreachable
		if !errors.As(err, &lost) || time.Now().After(late) {
			return s, err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return s, err
		}
	}
}

func (r *Rollout) ask(ctx context.Context, n Node) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	return Ask[Status](ctx, r.Cluster, n.Agent, nil, "status")
}

// taken waits until a node's agent has the version of a ConfigMap in force that is
// there now.
func (r *Rollout) taken(ctx context.Context, n Node, name string) error {
	layer, version := r.Change.Maps.version(name)
	late := time.Now().Add(r.Patience)
	for {
		s, err := r.status(ctx, n)
		if err != nil {
			return err
		}
		is, err := s.Takes(layer, version)
		if err != nil || is {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("the agent has not taken %s within %s: kubectl trimtab status %s", layer, r.Patience, n.Name)
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// finish writes the target's ConfigMap and takes the nodes' back.
func (r *Rollout) finish(ctx context.Context) error {
	if !r.Change.Nothing() {
		if err := r.Change.Apply(ctx); err != nil {
			return err
		}
		r.Say("ConfigMap %s has it for all nodes", r.Change.Target.Name())
	}
	for _, n := range r.Change.Nodes {
		// Before: without the node's own the agent would go back to what it had.
		if err := r.taken(ctx, n, r.Change.Target.Name()); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if err := r.Change.Maps.back(ctx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// back takes back what a rollout put into a node's ConfigMap.
func (m *Maps) back(ctx context.Context, node string) error {
	s, has := m.staged(node)
	switch {
	case !has:
		return nil
	case s.Sum != sum(m.Text(configmaps.Node(node))):
		return fmt.Errorf("somebody else changed ConfigMap %s/%s since the rollout wrote it: to keep the change, remove the annotation %s from it; "+
			"then run this again", m.Namespace, configmaps.Node(node), rolling)
	case s.Before == nil:
		return m.remove(ctx, configmaps.Node(node))
	}
	return m.put(ctx, configmaps.Node(node), *s.Before, func(o *unstructured.Unstructured) {
		notes := o.GetAnnotations()
		delete(notes, rolling)
		o.SetAnnotations(notes)
	})
}

// single writes one node's own ConfigMap and watches the node.
func (r *Rollout) single(ctx context.Context) error {
	if len(r.Change.Nodes) == 0 {
		return &Unreachable{Why: "node " + r.Change.Target.Node + ": " + r.Change.Skipped[0].Why()}
	}
	n := r.Change.Nodes[0]
	before, err := r.status(ctx, n)
	if err == nil {
		_, err = r.overlay(ctx, n) // the node takes the document, as far as can be known here
	}
	if err != nil {
		return fmt.Errorf("nothing is written: %w", err)
	}
	if err := r.Change.Apply(ctx); err != nil {
		return err
	}
	if err := r.taken(ctx, n, r.Change.Target.Name()); err != nil {
		return err
	}
	return r.watch(ctx, n, before.Violations(), r.Pause)
}

// Abort takes back what rollouts have put into nodes' ConfigMaps, and returns the nodes
// which go back to the configuration before.
func (m *Maps) Abort(ctx context.Context) ([]string, error) {
	var done []string
	names := make([]string, 0, len(m.objects))
	for name := range m.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		node, is := strings.CutPrefix(name, configmaps.Node(""))
		if _, has := m.staged(node); !is || !has {
			continue
		}
		if err := m.back(ctx, node); err != nil {
			return done, err
		}
		done = append(done, node)
	}
	return done, nil
}

// errInterrupted is the error of a rollout that the user ended.
var errInterrupted = errors.New("interrupted")

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}
