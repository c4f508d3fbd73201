package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

// rolloutAnnotation is the annotation of a node's own ConfigMap during a rollout. It has the earlier content of the
// ConfigMap, and the id of the rollout.
const rolloutAnnotation = "trimtab.io/rollout"

// rolloutState is the value of rolloutAnnotation, as JSON.
type rolloutState struct {
	// Rollout is the id of the change. Target is the name of the ConfigMap that the rollout writes at its end.
	Rollout string `json:"rollout"`
	Target  string `json:"target"`
	// Before is the text of the node's own ConfigMap before the rollout; nil if there was no ConfigMap.
	Before *string `json:"before,omitempty"`
	// Violations is the number of requests and decided values of the node that were not in force before the rollout.
	Violations int `json:"violations"`
	// Sum is the checksum of the text that the rollout wrote to the node's own ConfigMap.
	Sum string `json:"sum"`
}

// rolloutOf returns the rollout state of a node. The bool is false if no unfinished rollout has changed the node.
func (m *ConfigMaps) rolloutOf(node string) (rolloutState, bool) {
	var s rolloutState
	text := m.annotation(configmaps.NodeMapName(node), rolloutAnnotation)
	if text == "" {
		return s, false
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		s.Rollout = "unknown"
	}
	return s, true
}

// originalText returns the text of a node's own ConfigMap before the rollout.
func (m *ConfigMaps) originalText(n Node) string {
	s, has := m.rolloutOf(n.Name)
	switch {
	case !has:
		return m.Text(configmaps.NodeMapName(n.Name))
	case s.Before != nil:
		return *s.Before
	}
	return ""
}

// setAnnotation sets the annotation of a node's ConfigMap to this state.
func (s rolloutState) setAnnotation(o *unstructured.Unstructured) {
	text, err := json.Marshal(s)
	if err != nil {
		return // cannot fail: the value has only strings and numbers
	}
	notes := o.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[rolloutAnnotation] = string(text)
	o.SetAnnotations(notes)
}

// restore restores a node's ConfigMap to its content before the rollout.
func (m *ConfigMaps) restore(ctx context.Context, node string) error {
	s, has := m.rolloutOf(node)
	switch {
	case !has:
		return nil
	case s.Sum != checksum(m.Text(configmaps.NodeMapName(node))):
		return fmt.Errorf("another user or program has changed ConfigMap %s/%s since the rollout wrote it. To keep this change, remove the annotation %s from the ConfigMap; "+
			"then run the command again", m.Namespace, configmaps.NodeMapName(node), rolloutAnnotation)
	case s.Before == nil:
		return m.remove(ctx, configmaps.NodeMapName(node))
	}
	return m.write(ctx, configmaps.NodeMapName(node), *s.Before, func(o *unstructured.Unstructured) {
		notes := o.GetAnnotations()
		delete(notes, rolloutAnnotation)
		o.SetAnnotations(notes)
	})
}

// Abort restores the nodes' own ConfigMaps that rollouts have changed, and returns the names of these nodes.
func (m *ConfigMaps) Abort(ctx context.Context) ([]string, error) {
	var done []string
	names := make([]string, 0, len(m.objects))
	for name := range m.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		node, is := strings.CutPrefix(name, configmaps.NodeMapName(""))
		if _, has := m.rolloutOf(node); !is || !has {
			continue
		}
		if err := m.restore(ctx, node); err != nil {
			return done, err
		}
		done = append(done, node)
	}
	return done, nil
}
