package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func topologyAwarePolicy(t testing.TB, text string, o topologyaware.Options) (*topology.Machine, Policy) {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p := policy(m)
	p.Pools.Reserved = topology.SetOf(0)
	p.Pools.Shared = m.Online().Minus(p.Pools.Reserved)
	o.ReservedPoolNamespaces, o.UnlimitedBurstable = []string{"kube-system"}, topologyaware.Package
	p.Placement = topologyaware.New(m, o)
	return m, p
}

// treePod returns a pod with one container. A limit that equals the request makes it Guaranteed.
func treePod(n int, namespace string, milli, limit int64) (*lifecycle.Pod, *lifecycle.Container) {
	pod, c := balloonPod(n, namespace, "", milli)
	if limit > 0 {
		c.Resources.CPU.Quota, c.Resources.CPU.Period = lifecycle.Some(limit*100), lifecycle.Some(uint64(100000))
	}
	switch {
	case milli == 0 && limit == 0:
		pod.CgroupParent = fmt.Sprintf("/kubepods/besteffort/pod%d", n)
	case limit == milli:
		pod.CgroupParent = fmt.Sprintf("/kubepods/pod%d", n)
	}
	sum := c.Resources
	pod.Resources = &sum
	return pod, c
}

// checkTree checks invariants after every event.
func checkTree(t *rapid.T, s *State) {
	t.Helper()
	var owned topology.Set
	for _, id := range s.Containers() {
		c := s.Container(id)
		if c.Assignment.Pool != placement.Exclusive {
			continue
		}
		if both := owned.And(c.Assignment.Owned); !both.Empty() {
			t.Fatalf("%s owns CPUs %s of another", id, s.Machine.Format(both))
		}
		owned = owned.Union(c.Assignment.Owned)
	}
	if owned.Has(0) {
		t.Fatal("a container owns the reserved CPU")
	}
	for _, id := range s.Containers() {
		c := s.Container(id)
		cpus, ok := s.layout.CPUs(c.Assignment.CPUGroup)
		if c.Assignment.OwnsAndShares() {
			if part, known := s.layout.CPUsByPart[c.Assignment.PoolID]; !known || cpus != part.Union(c.Assignment.Owned) || cpus.Has(0) {
				t.Fatalf("%s runs on %s, owns %s, and shares %s", id, s.Machine.Format(cpus), s.Machine.Format(c.Assignment.Owned), s.Machine.Format(part))
			}
			if v, _ := s.CPUSet(c); v.Text != s.Machine.Format(cpus) {
				t.Fatalf("%s has %s and gets %s", id, s.Machine.Format(cpus), v.Text)
			}
		}
		if c.Assignment.Pool == placement.Exclusive {
			continue
		}
		if !ok || cpus.Empty() || !cpus.And(owned).Empty() {
			t.Fatalf("%s shares CPUs %q; owned are %s", id, s.Machine.Format(cpus), s.Machine.Format(owned))
		}
		if c.Assignment.Pool == placement.TreePool && cpus.Has(0) && !s.layout.CPUsByPart[c.Assignment.PoolID].Empty() { // Layout.CPUs gives an empty pool all CPUs without an owner
			t.Fatalf("%s runs on the reserved CPU", id)
		}
	}
}

// checkNotStarved checks that an owner takes no CPU that the containers of a part of the node need.
func checkNotStarved(t *rapid.T, before, after *State) {
	t.Helper()
	for w, milli := range after.layout.Demand.Needs.All() {
		was, now := before.layout.CPUsByPart[w].Len(), after.layout.CPUsByPart[w].Len()
		if now < was && int64(now)*milliOfCPU < milli || now == 0 {
			t.Fatalf("%s has %d CPUs of %d left for %dm", w, now, was, milli)
		}
	}
}

// TestTopologyAware: no CPU has two owners; no container shares owned or reserved CPUs; an owner leaves
// enough CPUs to each part of the node that is in use; the same events give the same decisions; and records
// give the same state as the events.
func TestTopologyAware(t *testing.T) {
	t.Parallel()
	for _, o := range []topologyaware.Options{{}, {ColocatePods: true, ColocateNamespaces: true, PreferIsolatedCPUs: true}} {
		m, p := topologyAwarePolicy(t, "2s x 2n x 2l x 2c x 2t", o)
		rapid.Check(t, func(t *rapid.T) {
			s := NewState(m, p)
			live, pods := map[int]*lifecycle.Container{}, map[int]*lifecycle.Pod{}
			for n := range rapid.IntRange(1, 40).Draw(t, "events") {
				var ev *lifecycle.Event
				if ids := slices.Sorted(maps.Keys(live)); len(ids) > 0 && rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
					i := rapid.SampledFrom(ids).Draw(t, "which")
					ev = &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pods[i]}
					delete(live, i)
					delete(pods, i)
				} else {
					milli := rapid.SampledFrom([]int64{0, 100, 500, 1000, 1500, 2000, 3000, 5000, 9000}).Draw(t, "milli")
					limit := rapid.SampledFrom([]int64{0, milli, milli, milli + 500}).Draw(t, "limit")
					pods[n], live[n] = treePod(n, rapid.SampledFrom([]string{"a", "b", "kube-system"}).Draw(t, "namespace"), milli, limit)
					ev = &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pods[n], Container: live[n]}
				}
				again, plan := Decide(s.Copy(), ev, Facts{}), Decide(s, ev, Facts{})
				if a, b := fmt.Sprint(again.GroupChanges), fmt.Sprint(plan.GroupChanges); a != b {
					t.Fatalf("decided %s, and %s", a, b)
				}
				before := s.Copy()
				was := s.layout
				s.Commit(plan)
				checkDerived(t, was, s)
				checkTree(t, s)
				checkNotStarved(t, before, s)
			}
			checkRecovered(t, s, pods, live)
		})
	}
}

// TestTopologyAwareParts: the parts of different nodes have the names of nri-plugins, and the smallest part
// with enough CPUs is chosen.
func TestTopologyAwareParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		node         string
		milli, limit int64
		want         string
	}{
		{"1s x 1n x 4c x 2t", 500, 500, "socket #0"},
		{"1s x 2n x 4c x 2t", 500, 500, "NUMA node #1"},
		{"1s x 2n x 2l x 4c x 2t", 500, 500, "NUMA node #0/L3 cache #1"},
		{"2s x 2d x 1n x 4c x 2t", 500, 500, "die #0/1"},
		{"2s x 2n x 4c x 2t", 9000, 9500, "socket #1"},
		{"2s x 2n x 4c x 2t", 20000, 0, "root"},
		{"2s x 2n x 4c x 2t", 90000, 0, "root"},
		{"2s x 2n x 4c x 2t", 100, 0, "socket #1"},
	} {
		m, p := topologyAwarePolicy(t, c.node, topologyaware.Options{})
		pod, ctr := treePod(0, "a", c.milli, c.limit)
		plan := Decide(NewState(m, p), &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, Facts{})
		if got := plan.Container.Assignment.PoolID.Name; got != c.want {
			t.Errorf("%s, %dm of %dm: placed in %q, want %q", c.node, c.milli, c.limit, got, c.want)
		}
	}
}

// TestTopologyAwareMemory: pinMemory binds owners and others to the memory nodes of their CPUs; without it both keep
// what the runtime requests.
func TestTopologyAwareMemory(t *testing.T) {
	t.Parallel()
	for _, pin := range []bool{true, false} {
		m, p := topologyAwarePolicy(t, "1s x 2n x 2c x 2t", topologyaware.Options{PinMemory: pin})
		for _, milli := range []int64{2000, 500} {
			pod, ctr := treePod(0, "a", milli, milli)
			plan := Decide(NewState(m, p), &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, Facts{})
			if got, want := plan.Container.Mems, map[bool]string{true: "1"}[pin]; got != want {
				t.Errorf("pinMemory %v, %dm: memory nodes %q, want %q", pin, milli, got, want)
			}
		}
	}
}

// TestTopologyAwareRequiresIsolated: a container whose pod requires isolated CPUs owns these, or is not created. That
// counts only for one that owns CPUs, and not if it prefers others itself.
func TestTopologyAwareRequiresIsolated(t *testing.T) {
	t.Parallel()
	require := map[string]string{intent.NRIRequireIsolated + "/pod": "true"}
	prefers := map[string]string{intent.NRIRequireIsolated: "true", intent.NRIPreferIsolated + "/container.c0": "false"}
	wants := map[string]string{intent.NRIRequireIsolated + "/container.c0": "true", intent.NRIPreferIsolated + "/container.c0": "false"}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		asks        treeAsk
		cpus        string // of isolated CPUs that it owns; "" if it owns none of them
		refused     bool
	}{
		{"as many as there are", require, whole(3), "5-7", false},
		{"one and a fraction", require, treeAsk{1500, 1500}, "5", false},
		{"more than there are", require, whole(4), "", true},
		{"shared CPUs", require, treeAsk{500, 500}, "", false},
		{"Burstable", require, treeAsk{4000, 5000}, "", false},
		{"its own preference counts first", prefers, whole(4), "", false},
		{"its own requirement counts first", wants, whole(4), "", true},
		{"required of no one", map[string]string{intent.NRIRequireIsolated: "false"}, whole(4), "", false},
	} {
		m, p := topologyAwarePolicy(t, "1s x 8c", topologyaware.Options{})
		for cpu := range topology.SetOf(5, 6, 7).All() {
			m.CPUs[cpu].Isolated = true
		}
		b := treeNodeOf(t, m, p)
		pod, ctr := treePod(1, "default", c.asks.milli, c.asks.limit)
		pod.Annotations, ctr.Name = c.annotations, "c0"
		for _, f := range []Facts{{}, {CannotRefuse: true}} {
			plan := Decide(b.s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, f)
			if refused := plan.Reject != ""; refused != (c.refused && !f.CannotRefuse) || refused && !strings.Contains(plan.Reject, "3 are free") {
				t.Errorf("%s: refused %q", c.name, plan.Reject)
				continue
			}
			if got := m.Format(plan.Container.Assignment.Owned.And(m.IsolatedCPUs())); plan.Reject == "" && got != c.cpus {
				t.Errorf("%s: owns isolated CPUs %q, want %q", c.name, got, c.cpus)
			}
		}
	}
}

// TestOwnerThatWouldShare: after a new configuration by which such containers share CPUs, an owner stays one. Reports name
// the policy, and a resize says why it keeps its CPUs.
func TestOwnerThatWouldShare(t *testing.T) {
	m, p := topologyAwarePolicy(t, "2s x 2n x 2c x 2t", topologyaware.Options{PreferSharedCPUs: true})
	pod, c := treePod(1, "shop", 2000, 2000)
	s := NewState(m, p)
	c.State = lifecycle.StateRunning
	records := map[string]Record{c.ID: {CPUs: "2-3", RecordFields: lifecycle.RecordFields{Pristine: c.Resources}}}
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{c}}, Facts{Records: records}))
	if a := s.Container(c.ID).Assignment; m.Format(a.Owned) != "2-3" || a.From != topologyaware.ConfigKey {
		t.Errorf("it owns %s by %s, wanted 2-3 by %s", m.Format(a.Owned), a.From, topologyaware.ConfigKey)
	}
	_, smaller := treePod(1, "shop", 1000, 1000)
	pod.Resources = &smaller.Resources
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: c, Requested: &smaller.Resources}, Facts{}))
	got := s.Container(c.ID)
	if said := fmt.Sprint(got.ProblemSummary.Problems); got.Assignment.Owned.Len() != 1 || !strings.Contains(said, topologyaware.ConfigKey) || !strings.Contains(said, "only shared CPUs, and the container still owns 1 CPUs") {
		t.Errorf("it owns %s: %s", m.Format(got.Assignment.Owned), said)
	}
}
