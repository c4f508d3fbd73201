package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestHugePageUse: what a state keeps about huge pages is what its containers use, and so are the pages that it finds
// free for a new one, while pods come, change and go and the machine reports other pages.
func TestHugePageUse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, p := t16(t, "2s x 2n x 4c, 8GiB/node")
		with := *m
		with.Nodes = slices.Clone(m.Nodes)
		for i := range with.Nodes {
			with.Nodes[i].HugePages = map[uint64]uint64{2 << 20: 64}
		}
		p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
		p.Topology = TopologyManager{Policy: rapid.SampledFrom([]numahints.Policy{numahints.None, numahints.BestEffort}).Draw(rt, "policy")}
		s := NewState(rapid.SampledFrom([]*topology.Machine{m, &with}).Draw(rt, "machine"), p)
		most := 0
		for range rapid.IntRange(5, 25).Draw(rt, "events") {
			name := fmt.Sprint("p", rapid.IntRange(0, 5).Draw(rt, "pod"))
			pod, all, spec := admitted(name, 2, 1)
			for i := range spec.Containers {
				spec.Containers[i].Requests = lifecycle.Amounts{lifecycle.ResourceCPU: 1000, "hugepages-2Mi": int64(rapid.SampledFrom([]int{0, 20, 60, 100}).Draw(rt, "pages")) << 21}
				spec.Containers[i].Kind = rapid.SampledFrom([]lifecycle.ContainerKind{lifecycle.App, lifecycle.Init}).Draw(rt, "kind")
			}
			f := Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}}
			ev := lifecycle.Event{Kind: rapid.SampledFrom([]lifecycle.Kind{
				lifecycle.CreateContainer, lifecycle.CreateContainer, lifecycle.CreateContainer, lifecycle.StopContainer, lifecycle.RemoveContainer,
				lifecycle.Inform, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox, lifecycle.Configure,
			}).Draw(rt, "event"), Pod: pod}
			switch ev.Kind {
			case lifecycle.CreateContainer, lifecycle.StopContainer, lifecycle.RemoveContainer:
				ev.Container = rapid.SampledFrom(all).Draw(rt, "container")
			case lifecycle.Configure:
				f = Facts{Machine: rapid.SampledFrom([]*topology.Machine{m, &with}).Draw(rt, "machine")}
			}
			s.Commit(Decide(s, &ev, f))
			for resource, kept := range s.hugePageUse {
				checkUse(rt, s, kept, func(p *Pod, c *Container) nodeBytes { return hugePagesOf(p, c, resource) })
				most = max(most, len(kept.byContainer))
			}
			checkFreeHugePages(rt, s)
		}
		rt.Log("containers with pages: ", most)
	})
}

// checkFreeHugePages compares the pages that are free for a container with a look at all others.
func checkFreeHugePages(t *rapid.T, s *State) {
	t.Helper()
	all := make([]uint64, len(s.Machine.Nodes))
	for i := range all {
		all[i] = s.Machine.Nodes[i].HugePages[2<<20] << 21
	}
	const resource = "hugepages-2Mi"
	for _, id := range s.Containers() {
		c := s.containers[id]
		d := newDraft(s, Facts{})
		place := d.placer(c, nil)
		got, want := place.freeHugePages(resource, all), slices.Clone(all)
		for n := range s.Machine.Nodes { // first those on the fewest nodes
			for _, of := range s.Containers() {
				other := s.containers[of]
				use := hugePagesOf(s.pods[other.PodID], other, resource)
				if ids, err := topology.ParseList(use.list); err == nil && other.Key != c.Key && use.bytes > 0 && len(ids) == n+1 {
					choose.SubtractMemory(s.Machine, want, d.n.nearMemoryCPUs(s.pods[other.PodID], other), ids, use.bytes)
				}
			}
		}
		if !slices.Equal(got, want) && len(s.hugePageUse) > 0 {
			t.Fatalf("free for %s: %v, want %v", id, got, want)
		}
	}
}
