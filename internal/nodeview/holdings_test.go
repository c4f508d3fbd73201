package nodeview

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestHoldings: CPUs of owners, and requests of containers whose memory is bound.
func TestHoldings(t *testing.T) {
	v := &View{State: busy(t, state(tiered(t), "0"))}
	got := HoldingsOf(still{v}, nil)
	if got.Synced {
		t.Error("nothing was synchronised")
	}
	ctr := func(cpus []int, memory ...MemoryHolding) []ContainerHoldings {
		return []ContainerHoldings{{Name: "c", Listed: true, CPUs: cpus, Memory: memory}}
	}
	pod := func(name, status string, containers []ContainerHoldings) PodHoldings {
		annotations := map[string]string{}
		if status != "" {
			annotations["scheduling.koordinator.sh/resource-status"] = status
		}
		return PodHoldings{
			Namespace: "d", Name: name, UID: "uid-" + name, Labels: map[string]string{"koordinator.sh/qosClass": "LS"},
			Annotations: annotations, Containers: containers,
		}
	}
	owner := ctr([]int{2, 3}, MemoryHolding{"memory", 0, 4 << 30})
	owner[0].CPUNodes = []int{0, 0}
	want := []PodHoldings{
		pod("bound", `{"numaNodeResources":[{"node":1,"resources":{"cpu":"1500m"}}]}`, ctr(nil)),
		pod("free", "", ctr(nil)),
		pod("owner", `{"cpuset":"2-3"}`, owner),
		pod("paged", "", ctr(nil, MemoryHolding{"hugepages-2Mi", 0, 256 << 20}, MemoryHolding{"memory", 0, 1 << 30})),
	}
	if diff := cmp.Diff(want, got.Pods); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, got.CPUs); diff != "" {
		t.Errorf("CPUs: -want +got:\n%s", diff)
	}
	const gi = 1 << 30
	memory := []MemoryHolding{
		{"hugepages-1Gi", 0, 4 * gi}, {"hugepages-2Mi", 0, gi}, {"memory", 0, 59 * gi}, {"memory", 1, 64 * gi}, {"memory", 2, 16 * gi}, {"memory", 8, 256 * gi},
	}
	if diff := cmp.Diff(memory, got.Memory); diff != "" {
		t.Errorf("memory: -want +got:\n%s", diff)
	}
}

// BenchmarkHoldings1000 reads the state of 1,000 pods of one container, 256 of which own CPUs.
func BenchmarkHoldings1000(b *testing.B) {
	s := state(described(b, "2s x 2n x 64c x 2t, 256GiB/node"), "")
	for i := range 1000 {
		status := ""
		if i < 256 {
			status = fmt.Sprintf(`{"cpuset":"%d"}`, i)
		}
		run(b, s, fmt.Sprint("p", i), status, fmt.Sprint(i%4), lifecycle.Amounts{"cpu": 1000, "memory": 64 << 20})
	}
	v := still{&View{State: s, Synced: time.Unix(1, 0)}}
	for b.Loop() {
		if h := HoldingsOf(v, nil); len(h.Pods) != 1000 || len(h.Pods[0].Containers[0].Memory) != 1 {
			b.Fatal(len(h.Pods))
		}
	}
}
