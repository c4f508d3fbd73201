package choose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/topology"
)

// Time of a choice, by the size of the machine and how full it is. On a full machine single cores are taken
// everywhere.
func BenchmarkChoose(b *testing.B) {
	for _, shape := range []string{"2s x 1n x 16c x 2t", "2s x 4n x 16c x 2t", "4s x 4n x 32c x 2t", "8s x 8n x 8c x 2t"} {
		m := machine(b, shape)
		tree := NewTree(m)
		for _, full := range []int{0, 50, 95} {
			b.Run(fmt.Sprintf("%dCPUs/%d%%full", len(m.CPUs), full), func(b *testing.B) {
				benchmarkChoose(b, tree, wantsOn(m, full, false))
			})
		}
	}
	for _, shape := range []string{"2s x 4n x 4l x 4c x 2t", "8s x 4n x 4l x 4c x 2t", "8s x 8n x 2l x 4c x 2t"} {
		m := withDistances(b, shape)
		tree := NewTree(m)
		for _, full := range []int{0, 50, 80, 95} {
			b.Run(fmt.Sprintf("%s/%d%%full", shape, full), func(b *testing.B) {
				benchmarkChoose(b, tree, wantsOn(m, full, true))
			})
			b.Run(fmt.Sprintf("%s/%d%%full/memory", shape, full), func(b *testing.B) {
				wants := wantsOn(m, full, true)
				for i := range wants {
					wants[i].Memory, wants[i].FreeMemory = 48<<30, memoryLeft(m)
				}
				benchmarkChoose(b, tree, wants)
			})
		}
	}
}

// Time to choose NUMA nodes: for requests that one node can serve, that two can, and, every eighth, that
// four can. Half of the requests use memory, and every third node has little.
func BenchmarkBind(b *testing.B) {
	for _, shape := range []string{"2s x 4n x 4l x 4c x 2t", "8s x 8n x 2l x 4c x 2t"} {
		m := withDistances(b, shape)
		tree := NewTree(m)
		for _, full := range []int{0, 50, 80} {
			b.Run(fmt.Sprintf("%s/%d%%full", shape, full), func(b *testing.B) {
				wants := wantsOn(m, full, true)
				memory := memoryLeft(m)
				fastest := make([]time.Duration, len(wants))
				for i := 0; b.Loop(); i++ {
					w := &wants[i%len(wants)]
					q := NodeSetRequest{
						N: 1 + w.N%(m.Nodes[0].CPUs.Len()*5/4), From: w.From, Cores: w.Cores, PreferEmptiest: w.PreferEmptiest, Preferences: w.Preferences, Shared: w.Shared, Reserve: w.Reserve,
					}
					if i%8 == 7 {
						q.N = 1 + w.N%(m.Nodes[0].CPUs.Len()*4)
					}
					if i/4%2 == 1 {
						q.Memory, q.FreeMemory = 48<<30, memory
					}
					start := time.Now()
					_, _, _ = tree.ChooseNodeSet(q)
					d := time.Since(start)
					if f := &fastest[i%len(wants)]; *f == 0 || d < *f {
						*f = d
					}
				}
				b.ReportMetric(float64(slices.Max(fastest).Nanoseconds())/1e3, "slowest-µs")
			})
		}
	}
}

// memoryLeft returns the free memory of each NUMA node: every third node has little.
func memoryLeft(m *topology.Machine) []uint64 {
	left := make([]uint64, len(m.Nodes))
	for i := range left {
		left[i] = uint64(8+i%3*48) << 30
	}
	return left
}

// withDistances is a machine whose firmware reports the distances of NUMA nodes, and whose cores have their
// own L2 caches.
func withDistances(b *testing.B, shape string) *topology.Machine {
	b.Helper()
	m := machine(b, shape)
	l := topology.Layout{CPUs: m.CPUs, Nodes: m.Nodes}
	for i := range l.CPUs {
		l.CPUs[i].L2 = m.GroupOf(topology.CoreLevel, i)
	}
	for i := range l.Nodes {
		l.Nodes[i].Distance = nil
		for j := range l.Nodes {
			distance := 32
			switch {
			case i == j:
				distance = 10
			case m.CountGroups(topology.PackageLevel, m.Nodes[i].CPUs.Union(m.Nodes[j].CPUs)) == 1:
				distance = 12
			}
			l.Nodes[i].Distance = append(l.Nodes[i].Distance, distance)
		}
	}
	m, err := topology.Build(l)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// wantsOn returns requests on a machine where others own a percentage of the CPUs. On a used machine a
// shared pool runs on half of the free CPUs, bound pools need four CPUs of every second NUMA node, a
// quarter of the requests grow, and a quarter should be near a device.
func wantsOn(m *topology.Machine, full int, inUse bool) []Request {
	random := rand.New(rand.NewPCG(1, 2))
	free, shared := m.Online(), topology.Set{}
	for _, core := range m.Groups(topology.CoreLevel) {
		if random.IntN(100) < full {
			free = free.Minus(core)
		} else if random.IntN(2) > 0 {
			shared = shared.Union(core)
		}
	}
	wants := make([]Request, 64)
	for i := range wants {
		w := Request{N: 1 + random.IntN(free.Len()), From: free, Cores: CoreUse(i % 4), PreferEmptiest: i%8 > 3}
		if inUse {
			w.N = 1 + min(random.IntN(free.Len()), random.IntN(free.Len()))
			w.Shared = shared
			for at := 0; at < len(m.Nodes); at += 2 {
				cpus := m.Nodes[at].CPUs.And(free)
				w.Reserve = append(w.Reserve, NodeReserve{Node: m.Nodes[at].ID, CPUs: cpus, N: min(4, cpus.Len())})
			}
			near := m.Nodes[random.IntN(len(m.Nodes))].CPUs
			switch random.IntN(4) {
			case 0:
				w.UsedWith = topology.SetOf(near.Members()[:5]...)
				w.From = free.Minus(w.UsedWith)
				w.N = min(w.N, 12, w.From.Len())
			case 1:
				w.Preferences = []Preference{{Name: "its devices", CPUs: near, Partly: true}}
			}
		}
		wants[i] = w
	}
	return wants
}

// benchmarkChoose reports quantiles over all requests, and the best time of the slowest request, which
// other load affects least.
func benchmarkChoose(b *testing.B, tree *Tree, wants []Request) {
	b.Helper()
	took := make([]time.Duration, 0, 1<<16)
	fastest := make([]time.Duration, len(wants))
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		_, _ = tree.Choose(wants[i%len(wants)])
		d := time.Since(start)
		if len(took) < cap(took) {
			took = append(took, d)
		}
		if f := &fastest[i%len(wants)]; *f == 0 || d < *f {
			*f = d
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
	b.ReportMetric(float64(slices.Max(fastest).Nanoseconds())/1e3, "slowest-µs")
}
