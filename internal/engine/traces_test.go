package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// TestTraces: which CPUs a container owns if its record may be older than a resize, according to the
// record, the runtime's copy and the kernel.
func TestTraces(t *testing.T) {
	m := node(t)
	for _, c := range []struct {
		name                                 string
		record, copied, runs, offline, known string
		quotaRemoved, whole                  bool
		asked                                []int
		due                                  int
		want                                 string
	}{
		{name: "it gave one up", record: "2-3", copied: "2", runs: "2", quotaRemoved: true, asked: []int{1}, due: 1, want: "2"},
		{name: "it got one more", record: "2-3", copied: "2-4", runs: "2-4", quotaRemoved: true, asked: []int{3}, due: 3, want: "2-4"},
		{name: "the kernel had it first", record: "2-3", copied: "2-3", runs: "2", quotaRemoved: true, asked: []int{1}, due: 1, want: "2"},
		{name: "the copy alone tells", record: "2-3", copied: "2", quotaRemoved: true, asked: []int{1}, due: 1, want: "2"},
		{name: "one of its own is offline", record: "2-3", copied: "2", runs: "2", offline: "3", quotaRemoved: true, asked: []int{2}, due: 2, want: "2-3"},
		{name: "it gives up what is offline first", record: "2-4", copied: "2", runs: "2", offline: "3-4", quotaRemoved: true, asked: []int{2}, due: 2, want: "2-3"},
		{name: "all that it owns is offline", record: "2-3", copied: "0-1,4-15", runs: "0-1,4-15", offline: "2-3", asked: []int{2}, due: 2, want: "2-3"},
		{name: "all is offline, and it gave one up", record: "2-3", copied: "0-1,4-15", runs: "0-1,4-15", offline: "2-3", asked: []int{1}, due: 1, want: "2"},
		{name: "known to be its own", record: "2-3", copied: "2", runs: "2", known: "2-3", quotaRemoved: true, asked: []int{1}, due: 1, want: "2-3"},
		{name: "a growth was refused", record: "2-3", copied: "2-3", runs: "2-3", quotaRemoved: true, asked: []int{4}, due: 4, want: "2-3"},
		{name: "whole NUMA nodes", record: "0-7", copied: "0-7", runs: "0-7", quotaRemoved: true, whole: true, asked: []int{2}, due: 2, want: "0-7"},
		{name: "nothing tells", record: "2-3", runs: "2-3", asked: nil, want: "2-3"},
	} {
		got := (&ownershipSources{
			machine: m, recordCPUs: set(t, m, c.record), copyCPUs: m.OnlineOf(c.copied), kernelCPUs: m.OnlineOf(c.runs),
			usableCPUs: m.Online().Minus(m.OnlineOf(c.offline)), podCPUs: m.OnlineOf(c.known), quotaRemoved: c.quotaRemoved, wholeNodes: c.whole, candidateCounts: c.asked, requestedCount: c.due,
		}).ownedCPUs(c.record, c.copied)
		if got != c.want {
			t.Errorf("%s: it owns %s, want %s", c.name, got, c.want)
		}
	}
	if none := (&ownershipSources{}).fillToCount(topology.Set{}); !none.Empty() {
		t.Errorf("nothing fits %v", none)
	}
}
