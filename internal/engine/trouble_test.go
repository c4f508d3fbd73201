package engine

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/none"
)

// problemHook is a hook that reports a given number of problems for each container and pod.
type problemHook struct{ n int }

func (problemHook) Info() hook.Info { return hook.Info{Name: "grumbler"} }

func (g problemHook) Propose(in *hook.Input, out *hook.Output) {
	for i := range g.n {
		out.Problems = append(out.Problems, lifecycle.Problem{Key: in.Container, Reason: fmt.Sprint(i), Refused: i == g.n-1, Warning: i < g.n-1})
	}
}

// nodeWithHooks is a node of a policy with the given hooks.
func nodeWithHooks(t *testing.T, p Policy) *State {
	t.Helper()
	m := node(t)
	p.Pools = policy(m).Pools
	return NewState(m, p)
}

// TestProblemsOfOnePod: however many containers and problems a pod has, only few of its problems are kept,
// and the consequences of the others still apply.
func TestProblemsOfOnePod(t *testing.T) {
	for _, n := range []int{1, 3, 30} {
		s := nodeWithHooks(t, Policy{Placement: none.Policy{}, Hooks: []hook.Hook{problemHook{n}}})
		pod := &lifecycle.Pod{ID: "p", UID: "u", Name: "p", Namespace: "n"}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, Facts{}))
		ev := &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}}
		for i := range 100 {
			c := &lifecycle.Container{ID: fmt.Sprint("c", i), PodID: "p", Name: fmt.Sprint("c", i), State: lifecycle.StateRunning}
			ev.Containers = append(ev.Containers, c)
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
		}
		checkKept(t, s, n)
		for _, c := range ev.Containers[:50] {
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: c, Requested: &lifecycle.Resources{}}, Facts{}))
		}
		checkKept(t, s, n)
		s.Commit(Decide(s, ev, Facts{}))
		checkKept(t, s, n)
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Configure}, Facts{}))
		checkKept(t, s, n)
	}
}

// checkKept checks the problems of a pod with a hundred containers.
func checkKept(t *testing.T, s *State, n int) {
	t.Helper()
	p := s.Pod("p")
	kept, all := len(p.Intent.Problems)+len(p.ProblemSummary.Problems), len(p.Intent.Problems)+len(p.ProblemSummary.Problems)+p.ProblemSummary.More
	for _, id := range s.Containers() {
		c := s.Container(id)
		kept, all = kept+len(c.ProblemSummary.Problems), all+len(c.ProblemSummary.Problems)+c.ProblemSummary.More
		if !c.ProblemSummary.Refused {
			t.Errorf("%s: that it was refused something is lost", id)
		}
		if got := lifecycle.CountProblems(s.Problems(c)); got != n {
			t.Errorf("%s: %d problems are reported, want %d", id, got, n)
		}
	}
	if kept > lifecycle.MaxProblems || kept < lifecycle.MaxProblems-n || all != 101*n {
		t.Errorf("%d problems are kept of %d, want at most %d of %d", kept, all, lifecycle.MaxProblems, 101*n)
	}
}

// TestStrictCountsUnlistedProblems: a container is refused because of a problem that is not kept.
func TestStrictCountsUnlistedProblems(t *testing.T) {
	s := nodeWithHooks(t, Policy{Placement: none.Policy{}, Strict: true, Hooks: []hook.Hook{onlyContainers{problemHook{1}}}})
	pod := &lifecycle.Pod{ID: "p", UID: "u", Name: "p", Namespace: "n"}
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, Facts{}))
	for i := range 40 {
		c := &lifecycle.Container{ID: fmt.Sprint("c", i), PodID: "p", Name: fmt.Sprint("c", i), State: lifecycle.StateRunning}
		known := &lifecycle.Event{Kind: lifecycle.StartContainer, Pod: pod, Container: c}
		if plan := Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}); plan.Reject == "" {
			t.Fatalf("container %d is not refused", i)
		}
		s.Commit(Decide(s, known, Facts{}))
	}
}

// onlyContainers calls a hook only for containers.
type onlyContainers struct{ hook.Hook }

func (o onlyContainers) Propose(in *hook.Input, out *hook.Output) {
	if in.Container != "" {
		o.Hook.Propose(in, out)
	}
}

// TestManyHookServerValues: thousands of values of a hook server cost linear time, and each setting is set
// once.
func TestManyHookServerValues(t *testing.T) {
	s := nodeWithHooks(t, Policy{Placement: none.Policy{}})
	pod := &lifecycle.Pod{ID: "p", UID: "u", Name: "p", Namespace: "n"}
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, Facts{}))
	var o lifecycle.HookServerAnswer
	for i := range 20_000 {
		o.Values = append(o.Values, lifecycle.Value{Field: lifecycle.Env, Key: fmt.Sprint("E", i%10_000), Text: fmt.Sprint(i), Why: lifecycle.Reason{Hook: lifecycle.HookServerName}})
	}
	c := &lifecycle.Container{ID: "c", PodID: "p", Name: "c"}
	var plan *Plan
	used := testing.AllocsPerRun(1, func() {
		plan = Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{HookServers: o})
	})
	if got := plan.Container.decision.proposed; len(got) != 10_000 || got[0].Text != "10000" || got[9_999].Text != "19999" {
		t.Errorf("%d values", len(got))
	}
	if used > 2_000 {
		t.Errorf("%g allocations", used)
	}
	updated := Decide(s, &lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: c, Requested: &lifecycle.Resources{}}, Facts{HookServers: o})
	if updated.Container != nil && len(updated.Container.DecisionProblems()) > lifecycle.MaxProblems+1 {
		t.Errorf("%d problems", len(updated.Container.DecisionProblems()))
	}
}
