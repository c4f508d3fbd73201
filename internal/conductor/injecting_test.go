package conductor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// refusedRow reports whether an attack is refused by the default of a kind.
func refusedRow(a *attack, k intent.Kind) bool {
	return strings.HasPrefix(a.want, string(k)+": pods of namespace default")
}

// TestInjectorsAreAttacked: each kind that is refused by default and that a hook of injectors
// serves has an attack, and without the refusal the attack would set each field of the hook.
// So a new hook that injects something needs a row.
func TestInjectorsAreAttacked(t *testing.T) {
	t.Parallel()
	for _, h := range injectors() {
		info := h.Info()
		t.Run(info.Name, func(t *testing.T) {
			t.Parallel()
			kind := kindOf(info.Name)
			if kind == "" {
				t.Fatal("no kind that is refused by default stands for it")
			}
			var rows []attack
			for _, a := range attacks() {
				if refusedRow(&a, kind) {
					rows = append(rows, a)
				}
			}
			if len(rows) == 0 {
				t.Fatalf("no attack is refused as %s", kind)
			}
			for _, f := range info.Sets {
				if !slices.ContainsFunc(rows, func(a attack) bool { return bites(t, a, f) }) {
					t.Errorf("with everything allowed, no attack on %s sets %s", kind, f)
				}
			}
		})
	}
}

// TestEveryInjectorIsHere: a hook of the catalogue that only a kind refused by default serves
// is one of injectors, or the stage has it otherwise.
func TestEveryInjectorIsHere(t *testing.T) {
	t.Parallel()
	// They serve other kinds, too, or sets of nodes. Classes of schedulingClass exist only in a configuration of
	// balloons.
	elsewhere := []string{"cpuset", "gpu", "rdma", "oomScore", "blockIO", "rdt", "coreSched", "schedulingClass"}
	var here []string
	for _, h := range injectors() {
		here = append(here, h.Info().Name)
	}
	for _, h := range hook.Catalogue() {
		if kindOf(h.Name) != "" && !slices.Contains(here, h.Name) && !slices.Contains(elsewhere, h.Name) {
			t.Errorf("%s is not among the hooks that attacks are played against", h.Name)
		}
	}
}

// kindOf is the kind, refused by default, that a hook alone serves; "" if there is none.
func kindOf(name string) intent.Kind {
	for _, d := range intent.Defaults() {
		if d.Decision == intent.Refuse && slices.Equal(intent.ServingHooks(d.Kind, ""), []string{name}) {
			return d.Kind
		}
	}
	return ""
}

// bites reports whether an attack sets a field where everything is allowed.
func bites(t *testing.T, a attack, f lifecycle.Field) bool {
	t.Helper()
	s := newStage(t, cgroup.V2, false)
	s.policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	s.con.Configure(s.policy, conductor.Tuning{})
	c, err := s.run(a, true)
	if err != nil {
		t.Fatal(err)
	}
	if f == lifecycle.Unified { // the keeper writes such files
		silent, err := s.run(a, false)
		if err != nil {
			t.Fatal(err)
		}
		with, without := s.inForce(c), s.inForce(silent)
		return slices.ContainsFunc(hook.MemoryQoSFiles(), func(file string) bool {
			return with["container "+file] != without["container "+file]
		})
	}
	return slices.ContainsFunc(c.created, func(setting string) bool {
		return strings.HasPrefix(setting, f.String()+" ") || setting == f.String()
	})
}
