package podreport

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Node gives access to the node's state and journal; the conductor implements it.
type Node interface {
	nodeview.Source
	Journal() *nodeview.Journal
}

const (
	// debounce is the pause of watch between a new event and the next call of its function read, because one pod causes
	// several events.
	debounce = 3 * time.Second
	// sweepInterval is how often watch calls its function read without a new event, because values can change without
	// an event.
	sweepInterval = time.Minute
)

// watch calls read with the new events of the journal, until ctx ends. After an event, it waits for the time debounce,
// so that one call gets several events. It also calls read every sweepInterval. lost is the number of events that the
// journal dropped before watch read them.
func watch(ctx context.Context, n Node, debounce time.Duration, read func(events []api.Event, lost uint64)) {
	tick := time.NewTicker(sweepInterval)
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
