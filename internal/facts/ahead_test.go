package facts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// plugins answer each question alike.
type plugins struct {
	facts.ResourcePlugins
	refusal error
}

func (p plugins) Question(*lifecycle.Pod, *lifecycle.Container, *lifecycle.PodSpec, bool) facts.Question {
	return p
}

func (plugins) Hints(context.Context) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	return nil, nil
}

func (p plugins) Allocate(context.Context, *lifecycle.Affinity) (lifecycle.HookServerAnswer, error) {
	return lifecycle.HookServerAnswer{}, p.refusal
}

// TestExpectRefused: a container that a plugin refuses before its creation is not decided ahead.
func TestExpectRefused(t *testing.T) {
	for _, refusal := range []error{nil, errors.New("no NIC is left")} {
		g := facts.New(facts.Options{Plugins: plugins{refusal: refusal}})
		ev := &lifecycle.Event{Kind: lifecycle.Expect, Pod: &lifecycle.Pod{UID: "u"}, Container: &lifecycle.Container{Name: "app"}}
		if got, ok := g.Expect(t.Context(), ev); ok != (refusal == nil) || len(got.HookServers.Problems) != 0 {
			t.Errorf("with refusal %v: %v, problems %v", refusal, ok, got.HookServers.Problems)
		}
	}
}
