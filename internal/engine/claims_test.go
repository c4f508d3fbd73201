package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/claims"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestClaims: with authority: dra containers own the CPUs of their claims, share those of a common claim, and own
// nothing where something is wrong.
func TestClaims(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	m, _ = m.WithOnline([]int{0, 1, 2, 3, 4, 5, 6})
	of := func(cpus ...int) lifecycle.Claim {
		return lifecycle.Claim{UID: fmt.Sprint(cpus), Name: "d/claim", CPUs: cpus}
	}
	refused := lifecycle.Problem{Key: "authority", Reason: "not its own", Refused: true}
	grants := []struct {
		pod, name string
		claims    []lifecycle.Claim
		problems  []lifecycle.Problem
		cpus      string
		problem   string
	}{
		{pod: "a", name: "x", claims: []lifecycle.Claim{of(1, 2)}, cpus: "1-2"},
		{pod: "b", name: "x", claims: []lifecycle.Claim{of(1, 2), of(3)}, cpus: "1-3"},
		{pod: "b", name: "y", claims: []lifecycle.Claim{of(3)}, cpus: "3"},
		{pod: "c", name: "x", claims: []lifecycle.Claim{of(2)}, problem: "its resource claims give it CPUs 2, which d/a owns"},
		{pod: "c", name: "y", claims: []lifecycle.Claim{of(4), of(3, 5)}, problem: "CPUs 3, which d/b owns"},
		{pod: "b", name: "z", claims: []lifecycle.Claim{of(1, 3)}, problem: "CPUs 1, which d/a owns"},
		{pod: "d", name: "x", claims: []lifecycle.Claim{of(6, 7)}, cpus: "6"},
		{pod: "e", name: "x", claims: []lifecycle.Claim{of(4), of(9)}, problem: "that this node does not have"},
		{pod: "e", name: "y", claims: []lifecycle.Claim{of(4)}, problems: []lifecycle.Problem{refused}, problem: "not its own"},
		{pod: "f", name: "x", claims: []lifecycle.Claim{{UID: "s"}}},
	}
	play := func(p Policy) (*State, []string) {
		s, ids := NewState(m, p), make([]string, len(grants))
		for i, g := range grants {
			pod := &lifecycle.Pod{ID: g.pod, UID: g.pod, Namespace: "d", Name: g.pod, CgroupParent: "/kubepods/pod" + g.pod}
			ids[i] = g.pod + g.name
			facts := Facts{Claims: map[string]*lifecycle.ClaimGrant{ids[i]: {Claims: g.claims, Problems: g.problems}}}
			ctr := &lifecycle.Container{ID: ids[i], PodID: g.pod, Name: g.name}
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, facts))
		}
		return s, ids
	}
	p := policy(m)
	p.Placement = claims.Policy{Policy: none.Policy{}}
	s, ids := play(p)
	for i, g := range grants {
		c, said := s.Container(ids[i]), ""
		for _, q := range c.ProblemSummary.Problems {
			said += q.String() + "\n"
		}
		if got := m.Format(c.Assignment.Owned); got != g.cpus || !strings.Contains(said, g.problem) || g.problem == "" && g.cpus != "6" && said != "" {
			t.Errorf("%s of %s: CPUs %q, problems %q", g.name, g.pod, got, said)
		}
		if why := c.Assignment.Why; g.cpus != "" && !strings.Contains(why, "owned because of resource claim d/claim") {
			t.Errorf("%s of %s: %s", g.name, g.pod, why)
		}
	}
	if got := m.Format(s.OwnedCPUs()); got != "1-3,6" {
		t.Errorf("CPUs %s have an owner", got)
	}

	// The end of one pod frees what no other has by the same claim, and a container that waited gets its CPUs.
	for _, end := range []struct{ pod, owned, of, cpus string }{{"a", "1-3,6", "cx", ""}, {"b", "2-6", "cx", "2"}} {
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: s.Pod(end.pod).Pod}, Facts{}))
		if got, has := m.Format(s.OwnedCPUs()), m.Format(s.Container(end.of).Assignment.Owned); got != m.Format(m.KnownCPUsOf(end.owned)) || has != end.cpus {
			t.Errorf("after %s: %s have an owner, %s has %q", end.pod, got, end.of, has)
		}
	}

	// With authority: agent claims give nothing.
	p.Placement = none.Policy{}
	if s, _ := play(p); !s.OwnedCPUs().Empty() {
		t.Errorf("CPUs %s have an owner", m.Format(s.OwnedCPUs()))
	}
}

// TestClaimsOfKubelet: claims and the kubelet's static manager are different authorities.
func TestClaimsOfKubelet(t *testing.T) {
	for _, c := range []struct {
		of              placement.Policy
		kubelet, claims bool
	}{{none.Policy{}, false, false}, {claims.Policy{Policy: none.Policy{}}, false, true}} {
		p := Policy{PlacementOn: true, Placement: c.of}
		if p.KubeletDecidesCPUs() != c.kubelet || p.ClaimsDecideCPUs() != c.claims {
			t.Errorf("%T: %v, %v", c.of, p.KubeletDecidesCPUs(), p.ClaimsDecideCPUs())
		}
	}
}

// TestRefusedClaimEndsGrant: a new container with the name of an ended one has another claim, which is refused. The
// claim of the ended container then keeps no CPUs from other containers.
func TestRefusedClaimEndsGrant(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	n := &claimNode{m: m, grants: map[string]*lifecycle.ClaimGrant{}}
	n.s = n.fresh()
	create := func(id, pod, name string, claim int) *Container {
		n.grants[id] = &lifecycle.ClaimGrant{Claims: []lifecycle.Claim{claimOf(claim)}}
		p := &lifecycle.Pod{ID: "s-" + pod, UID: pod, Namespace: "d", Name: pod, CgroupParent: "/kubepods/pod" + pod}
		c := &lifecycle.Container{ID: id, PodID: p.ID, Name: name, State: lifecycle.StateCreated}
		n.do(&lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: c})
		if id == "c1" {
			n.do(&lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p, Container: c})
		}
		return n.s.Container(id)
	}
	create("c1", "u", "ends", 3)
	create("c2", "u", "stays", 1)
	for _, c := range []struct {
		got  *Container
		want string
	}{{create("c3", "u", "ends", 2), ""}, {create("c4", "v", "other", 4), "4"}} {
		if m.Format(c.got.Assignment.Owned) != c.want {
			t.Errorf("%s owns %q, want %q", c.got.ID, m.Format(c.got.Assignment.Owned), c.want)
		}
	}
}
