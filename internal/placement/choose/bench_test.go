package choose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/topology"
)

// How long a choice takes, by the size of the machine and how full it is. A full
// machine is one where single cores are taken here and there.
func BenchmarkChoose(b *testing.B) {
	for _, shape := range []string{"2s x 1n x 16c x 2t", "2s x 4n x 16c x 2t", "4s x 4n x 32c x 2t", "8s x 8n x 8c x 2t"} {
		m := machine(b, shape)
		tree := NewTree(m)
		for _, full := range []int{0, 50, 95} {
			b.Run(fmt.Sprintf("%dCPUs/%d%%full", len(m.CPUs), full), func(b *testing.B) {
				benchmarkChoose(b, m, tree, full)
			})
		}
	}
}

func benchmarkChoose(b *testing.B, m *topology.Machine, tree *Tree, full int) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	free := m.Online()
	for _, core := range m.Groups(topology.CoreLevel) {
		if random.IntN(100) < full {
			free = free.Minus(core)
		}
	}
	wants := make([]Want, 64)
	for i := range wants {
		wants[i] = Want{N: 1 + random.IntN(free.Len()), From: free, Cores: Cores(i % 4), Roomy: i%8 > 3}
	}
	took := make([]time.Duration, 0, 1<<16)
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		_, _ = tree.Choose(wants[i%len(wants)])
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
}
