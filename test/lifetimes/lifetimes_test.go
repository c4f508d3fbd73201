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

// lifetimes is how many pods come and go: a million where TRIMTAB_SOAK is set.
func lifetimes() int {
	if os.Getenv("TRIMTAB_SOAK") != "" {
		return 1_000_000
	}
	return 20_000
}

// bounded are the places that may be filled up to a bound: a journal that is written
// again when it has too many lines of what ended.
var bounded = map[string]int{"keeper.Originals.remembered": 1100}

// skip is what a census does not enter: what does not grow with pods, or is bounded
// by its own tests.
var skip = []string{"*topology.", "topology.", "slog.", "*slog.", "[]api.Event", "*kernel.Cgroups", "*prometheus.", "hook.", "engine.Policy"}

// looks is how often the memory is looked at.
const looks = 10

// TestMemoryIsFlat has pods come and go, in every order of their ends, and holds what
// is kept after a tenth of them against what is kept after all.
func TestMemoryIsFlat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = n.con.Run(ctx) })
		var first census.Count
		var heap uint64
		total := lifetimes()
		for i := range looks {
			n.come(total / looks)
			kept := census.Of(skip, n.con)
			if i == 0 {
				first, heap = kept, live()
				n.empty(kept)
				continue
			}
			for _, name := range kept.Growth(first) {
				if kept[name] > bounded[name] {
					t.Errorf("after %d pods %s has %d entries, after %d it had %d", n.made, name, kept[name], total/looks, first[name])
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

// come has so many pods come and go, a few at a time.
func (n *node) come(count int) {
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
			time.Sleep(12 * time.Second) // sweeps, and what waits for quiet
		}
	}
	for i := range n.live {
		finish(i)
	}
	time.Sleep(time.Minute)
	for range 5 { // what a list left out once may be in the next
		n.all()
	}
	synctest.Wait()
}

// empty checks that nothing is known of pods that ended.
func (n *node) empty(kept census.Count) {
	n.t.Helper()
	for name, want := range map[string]int{
		"engine.State.pods": 0, "engine.State.containers": 0, "engine.State.byPod": 0, "engine.State.groups": 0, "placement.Ledger.pods": 0,
		"conductor.node.tracks": 0, "keeper.table.rows": 0,
		"record.file[github.com/trimtab/trimtab/internal/lifecycle.Record,github.com/trimtab/trimtab/internal/record.Overlay].Containers": 0,
	} {
		if got, there := kept[name]; got != want || !there {
			n.t.Errorf("nothing runs, and %s has %d entries (counted: %v)", name, got, there)
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
