package agent

import (
	"runtime"
	"testing"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 100, 1 << 20: 100, minHeapGrowth: 100, 2 * minHeapGrowth: 50, 100 * minHeapGrowth: 30} {
		if got := gcPercent(live, minHeapGrowth); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
	if got := gcPercent(2*startHeapGrowth, startHeapGrowth); got != 50 {
		t.Errorf("at the start: %d %%, want 50", got)
	}
	runtime.GC()
	if liveHeap() == 0 {
		t.Error("the runtime tells nothing of the live heap")
	}
}
