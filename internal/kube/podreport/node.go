package podreport

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Node is the conductor.
type Node interface {
	nodeview.Source
	Journal() *nodeview.Journal
}

const (
	// debounce is how long after a change the service reads the node, because one pod causes several events.
	debounce = 3 * time.Second
	// sweep is how often the service reads the node without a change, because a value may be lost without an event.
	sweep = time.Minute
)

// watch calls read with the events of the journal, debounced, and at least every sweep,
// until ctx ends. lost is the number of events that the journal had already dropped.
func watch(ctx context.Context, n Node, debounce time.Duration, read func(events []api.Event, lost uint64)) {
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	var seq uint64
	for {
		events, more := n.Journal().Since(seq)
		lost := uint64(0)
		if len(events) > 0 {
			lost = events[0].Seq - seq - 1
			seq = events[len(events)-1].Seq
		}
		read(events, lost)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			continue
		case <-more:
		}
		if !sleep.For(ctx, debounce) {
			return
		}
	}
}
