package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/report/status"
)

// journalSize is how many events are remembered.
const journalSize = 1024

// journal remembers the latest events for `trimtab events`.
type journal struct {
	events []status.Event // oldest first
	next   uint64
	more   chan struct{} // closed when an event comes
}

func newJournal() journal { return journal{next: 1, more: make(chan struct{})} }

func (j *journal) add(e status.Event) {
	e.Seq = j.next
	j.next++
	if len(j.events) == journalSize {
		copy(j.events, j.events[1:])
		j.events = j.events[:journalSize-1]
	}
	j.events = append(j.events, e)
	close(j.more)
	j.more = make(chan struct{})
}

// Events returns what the journal has after since, and a channel that closes
// when there is more.
func (c *Conductor) Events(_ context.Context, since uint64) ([]status.Event, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []status.Event
	for _, e := range c.journal.events {
		if e.Seq > since {
			out = append(out, e)
		}
	}
	return out, c.journal.more
}
