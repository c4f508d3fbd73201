package packing

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// rules has the allocators that are compared.
var rules = []struct {
	name string
	make func(testing.TB, *topology.Machine) allocator
}{
	{"pools", newOurs},
	{"kubelet", newKubelet},
	{"kubelet, aligned", newAlignedKubelet},
	{"katalyst", newKatalyst},
}

// The histories of the benchmark.
const (
	seeds = 3
	steps = 150
)

var fullness = []int{80, 95}

// BenchmarkPacking plays the histories of all shapes with all allocators. It measures no time: each history is played
// once, and the table is the result.
func BenchmarkPacking(b *testing.B) {
	for _, s := range shapes {
		m := s.machine(b)
		for _, full := range fullness {
			for _, r := range rules {
				var sum score
				played := false
				b.Run(fmt.Sprintf("%s/%d%%/%s", s.name, full, r.name), func(b *testing.B) {
					if !played { // not repeated for a larger b.N
						for seed := range seeds {
							sum.add(playAll(b, m, r.make(b, m), newHistory(s, m, full, steps, uint64(seed+1))).score)
						}
						played = true
						results.row(s.name, full, r.name, sum)
					}
					b.ReportMetric(0, "ns/op")
					for _, c := range []int{nodes, caches, split} {
						b.ReportMetric(float64(sum.avoidable[c]), criterionNames[c])
					}
				})
			}
		}
	}
}
