package engine

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/claims"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// claimNode plays random histories of pods whose containers have resource claims.
type claimNode struct {
	*rapid.T

	m      *topology.Machine
	s      *State
	pods   map[string]*lifecycle.Pod
	live   map[string]*lifecycle.Container // by id
	grants map[string]*lifecycle.ClaimGrant
	count  int
}

func (n *claimNode) fresh() *State {
	p := policy(n.m)
	p.Placement = claims.Policy{Policy: none.Policy{}}
	return NewState(n.m, p)
}

func (n *claimNode) do(ev *lifecycle.Event) {
	f := Facts{Claims: map[string]*lifecycle.ClaimGrant{}}
	if ev.Container != nil && n.grants[ev.Container.ID] != nil {
		f.Claims[ev.Container.ID] = n.grants[ev.Container.ID]
	}
	n.s.Commit(Decide(n.s, ev, f))
}

// claimOf is one of seven: a CPU alone, or two next to each other, which overlap with those of other claims.
func claimOf(i int) lifecycle.Claim {
	c := lifecycle.Claim{UID: fmt.Sprint("c", i), Name: fmt.Sprint("d/c", i), Device: fmt.Sprint("dra.k8s.io/cpu=claim-c", i), CPUs: []int{i}}
	if i%2 == 1 {
		c.CPUs = []int{i, (i + 1) % 8}
	}
	return c
}

func (n *claimNode) create() {
	uid := rapid.SampledFrom(append(sortedKeys(n.pods), "new")).Draw(n.T, "pod")
	n.count++
	if uid == "new" {
		uid = fmt.Sprint("u", n.count)
		n.pods[uid] = &lifecycle.Pod{ID: "s-" + uid, UID: uid, Namespace: "d", Name: uid, CgroupParent: "/kubepods/pod" + uid}
	}
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(n.T, "container")
	for _, c := range n.live {
		if c.PodID == n.pods[uid].ID && c.Name == name && c.State != lifecycle.StateStopped {
			return
		}
	}
	ctr := &lifecycle.Container{ID: fmt.Sprint("c", n.count), PodID: n.pods[uid].ID, Name: name, State: lifecycle.StateCreated, CreatedAt: int64(n.count)}
	if number := rapid.IntRange(0, 2).Draw(n.T, "claims"); number > 0 {
		g := &lifecycle.ClaimGrant{}
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 7), number, number, rapid.ID[int]).Draw(n.T, "which") {
			g.Claims = append(g.Claims, claimOf(i))
		}
		n.grants[ctr.ID] = g
	}
	n.live[ctr.ID] = ctr
	n.do(&lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: n.pods[uid], Container: ctr})
}

func (n *claimNode) some() (*lifecycle.Pod, *lifecycle.Container) {
	ids := sortedKeys(n.live)
	if len(ids) == 0 {
		return nil, nil
	}
	c := n.live[rapid.SampledFrom(ids).Draw(n.T, "which container")]
	return n.pods[c.PodID[len("s-"):]], c
}

func (n *claimNode) end() {
	if len(n.pods) == 0 {
		return
	}
	uid := rapid.SampledFrom(sortedKeys(n.pods)).Draw(n.T, "ends")
	kind := rapid.SampledFrom([]lifecycle.Kind{lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox}).Draw(n.T, "how")
	n.do(&lifecycle.Event{Kind: kind, Pod: n.pods[uid]})
	for id, c := range n.live {
		if c.PodID == n.pods[uid].ID {
			delete(n.live, id)
		}
	}
	delete(n.pods, uid)
}

// owns describes who owns which CPUs.
func (n *claimNode) owns() map[string]string {
	out := map[string]string{}
	for id := range n.live {
		if c := n.s.Container(id); c != nil && c.Alive() {
			out[id] = n.m.Format(c.Assignment.Owned)
		}
	}
	return out
}

// restart builds the state again from what the runtime lists, the claims and the records.
func (n *claimNode) restart() {
	before := n.owns()
	ev, f := &lifecycle.Event{Kind: lifecycle.Synchronize}, Facts{Records: map[string]Record{}, Claims: map[string]*lifecycle.ClaimGrant{}}
	for _, uid := range sortedKeys(n.pods) {
		ev.Pods = append(ev.Pods, n.pods[uid])
	}
	for _, id := range sortedKeys(n.live) {
		c := n.s.Container(id)
		if c == nil {
			continue
		}
		ev.Containers = append(ev.Containers, n.live[id])
		f.Records[id] = Record{Version: lifecycle.RecordVersion, RecordFields: c.RecordFields, CPUs: n.m.Format(c.Stamp.CPUs)}
		if n.grants[id] != nil {
			f.Claims[id] = n.grants[id]
		}
	}
	n.s = n.fresh()
	n.s.Commit(Decide(n.s, ev, f))
	for id, had := range before {
		if now := n.owns()[id]; now != had {
			n.Fatalf("%s owned %q before a restart, and owns %q", id, had, now)
		}
	}
}

// check is the invariant: a container owns all CPUs of its claims or none; what it owns, only containers with one of
// the same claims own; no pool has it; and nobody owns anything without a claim.
func (n *claimNode) check() {
	var owned topology.Set
	for id := range n.live {
		c := n.s.Container(id)
		if c == nil || !c.Alive() {
			continue
		}
		var all topology.Set
		of := n.grants[id]
		if of != nil {
			for _, claim := range of.Claims {
				all = all.Union(n.m.KnownCPUsOf(topology.FormatList(claim.CPUs)))
			}
		}
		has := c.Assignment.Owned
		if owned = owned.Union(has); !has.Empty() && has != all {
			n.Fatalf("%s owns %s of %s", id, n.m.Format(has), n.m.Format(all))
		}
		for other := range n.live {
			o := n.s.Container(other)
			if other == id || o == nil || !o.Alive() {
				continue
			}
			both := has.And(o.Assignment.Owned)
			if of != nil && n.grants[other] != nil {
				for _, claim := range of.Claims {
					for _, same := range n.grants[other].Claims {
						if claim.UID == same.UID {
							both = both.Minus(n.m.KnownCPUsOf(topology.FormatList(claim.CPUs)))
						}
					}
				}
			}
			if !both.Empty() {
				n.Fatalf("%s and %s own %s without a common claim", id, other, n.m.Format(both))
			}
			if cpus := n.s.CPUs(o); o.Assignment.Owned.Empty() && !cpus.And(has).Empty() {
				n.Fatalf("%s owns %s, and %s runs on %s", id, n.m.Format(has), other, n.m.Format(cpus))
			}
		}
	}
	if lost := owned.Minus(n.s.OwnedCPUs()); !lost.Empty() {
		n.Fatalf("CPUs %s are owned, and the ledger lacks them", n.m.Format(lost))
	}
}

// TestClaimHistories: over random claims, creations, resizes, ends and restarts no CPU of a claim is in a pool or has
// another owner, nothing leaks, and a restart gives the same state.
func TestClaimHistories(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 8c")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := &claimNode{T: rt, m: m, pods: map[string]*lifecycle.Pod{}, live: map[string]*lifecycle.Container{}, grants: map[string]*lifecycle.ClaimGrant{}}
		n.s = n.fresh()
		change := func(kind lifecycle.Kind, state lifecycle.State) func(*rapid.T) {
			return func(*rapid.T) {
				if p, c := n.some(); c != nil && c.State != lifecycle.StateStopped {
					c.State = state
					n.do(&lifecycle.Event{Kind: kind, Pod: p, Container: c})
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { n.check() },
			"create": func(*rapid.T) { n.create() },
			"start":  change(lifecycle.StartContainer, lifecycle.StateRunning),
			"stop":   change(lifecycle.StopContainer, lifecycle.StateStopped),
			"resize": func(*rapid.T) {
				if p, c := n.some(); c != nil && c.State != lifecycle.StateStopped {
					asked := lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(rapid.Uint64Range(2, 4096).Draw(n.T, "shares"))}}
					n.do(&lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: c, Requested: &asked})
				}
			},
			"remove": func(*rapid.T) {
				if p, c := n.some(); c != nil {
					delete(n.live, c.ID)
					n.do(&lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p, Container: c})
				}
			},
			"end":     func(*rapid.T) { n.end() },
			"restart": func(*rapid.T) { n.restart() },
		})
		for len(n.pods) > 0 {
			n.end()
		}
		if left := n.s.OwnedCPUs(); !left.Empty() {
			rt.Fatalf("after the end of all pods CPUs %s have an owner", m.Format(left))
		}
	})
}
