package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// TestOwnerAcrossConfigurations: a configuration takes an owner's CPUs and the next one returns them, with the same
// result as a restart with that configuration and the record.
func TestOwnerAcrossConfigurations(t *testing.T) {
	m := node(t)
	for name, taking := range map[string]func(*Policy){
		"hook off": func(p *Policy) { p.PlacementOn, p.Hooks = false, p.Hooks[1:] },
		"reserved": func(p *Policy) { p.Pools.Reserved = set(t, m, "2") },
	} {
		s := NewState(m, policy(m))
		_, owner := create(t, s, "db", "LSR", `{"cpuset":"2-3"}`, "/kubepods/poddb")
		configure := func(p Policy) {
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Configure}, Facts{Policy: &p}))
		}
		taken := policy(m)
		taking(&taken)
		configure(taken)
		c := s.Container(owner.ID)
		if c.Assignment.Pool == placement.Exclusive || len(s.Grants()) > 0 || m.Format(c.Stamp.CPUs) != "2-3" {
			t.Errorf("%s: %+v, grants %v", name, c, s.Grants())
		}
		configure(taken) // once more changes nothing
		configure(policy(m))
		c = s.Container(owner.ID)
		if c.Assignment.Pool != placement.Exclusive || m.Format(c.Assignment.Owned) != "2-3" || len(s.Grants()) != 1 || len(c.ProblemSummary.Problems) > 0 {
			t.Errorf("%s, and taken back: %+v, grants %v", name, c, s.Grants())
		}
	}
}
