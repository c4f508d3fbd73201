package lifetimes

import (
	"context"
	"os"
	gort "runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/sim/census"
)

// lifetimes is the number of pods that the test starts and ends: a million with TRIMTAB_SOAK.
func lifetimes() int {
	if os.Getenv("TRIMTAB_SOAK") != "" {
		return 1_000_000
	}
	return 20_000
}

// bounded has the places that may grow up to a bound, such as a journal that is rewritten when too many of its lines
// are about ended pods.
var bounded = map[string]int{"keeper.Originals.leftovers": 1100}

// skip has the types that a census does not enter: they do not grow with pods, or their own tests bound them.
var skip = []string{"*topology.", "topology.", "slog.", "*slog.", "[]api.Event", "*kernel.Cgroups", "*prometheus.", "hook.", "engine.Policy"}

// measurements is how often the test measures the memory.
const measurements = 10

// TestMemoryIsFlat starts and ends pods, with the end events in every order, and compares the memory after a tenth of
// them with the memory after all.
func TestMemoryIsFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = n.con.Run(ctx) })
		var first census.Count
		var heap uint64
		total := lifetimes()
		for i := range measurements {
			n.startAndEnd(total / measurements)
			kept := census.Of(skip, n.con)
			if i == 0 {
				first, heap = kept, live()
				n.empty(kept)
				continue
			}
			for _, name := range kept.Growth(first) {
				if kept[name] > bounded[name] {
					t.Errorf("after %d pods %s has %d entries, after %d it had %d", n.made, name, kept[name], total/measurements, first[name])
				}
			}
			if now := live(); now > heap+heap/4+1<<20 {
				t.Errorf("after %d pods %d KiB are live, after the first tenth it was %d", n.made, now>>10, heap>>10)
			}
			if t.Failed() {
				break
			}
		}
		t.Logf("%d pods and containers; %d KiB live at the end, %d after the first tenth", n.made, live()>>10, heap>>10)
		stop()
		all.Wait()
	})
}

// startAndEnd starts and ends pods, a few at a time.
func (n *node) startAndEnd(count int) {
	all := orders()
	finish := func(i int) {
		p := n.live[0]
		n.live = n.live[1:]
		n.end(p, all[i%len(all)], n.rng.IntN(32) == 0)
	}
	for i := range count {
		n.live = append(n.live, n.run())
		if len(n.live) > 6 {
			finish(i)
		}
		switch {
		case i%500 == 250:
			n.all()
		case i%100 == 50:
			time.Sleep(12 * time.Second) // sweeps, and timers that wait for an idle node
		}
	}
	for i := range n.live {
		finish(i)
	}
	time.Sleep(time.Minute)
	for range 5 { // a pod that one list left out may be in the next
		n.all()
	}
	synctest.Wait()
}

// empty checks that the agent has no entry of ended pods.
func (n *node) empty(kept census.Count) {
	n.t.Helper()
	for name, want := range map[string]int{
		"engine.State.pods": 0, "engine.State.containers": 0, "engine.State.containerIDsByPod": 0, "engine.State.groups": 0, "placement.Ledger.grantsByPod": 0,
		"conductor.node.tracks": 0, "keeper.table.rows": 0,
		"record.checkpointFile[github.com/trimtab/trimtab/internal/lifecycle.Record,github.com/trimtab/trimtab/internal/record.Overlay].Containers": 0,
	} {
		if got, there := kept[name]; got != want || !there {
			n.t.Errorf("no pod runs, and %s has %d entries (counted: %v)", name, got, there)
		}
	}
}

func live() uint64 {
	for range 3 {
		gort.GC()
	}
	var m gort.MemStats
	gort.ReadMemStats(&m)
	return m.HeapAlloc
}
