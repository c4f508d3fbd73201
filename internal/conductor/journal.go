package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/report/api"
)

// journalSize is how many events are remembered.
const journalSize = 1024

// journal remembers the latest events for `trimtab events`.
type journal struct {
	events []api.Event // that of sequence number n is at n-1, modulo journalSize
	next   uint64
	more   chan struct{} // closed when an event comes; nil while nobody waits
}

func newJournal() journal { return journal{next: 1} }

func (j *journal) add(e api.Event) {
	e.Seq = j.next
	if len(j.events) < journalSize {
		j.events = append(j.events, e)
	} else {
		j.events[(e.Seq-1)%journalSize] = e
	}
	j.next++
	if j.more != nil {
		close(j.more)
		j.more = nil
	}
}

// since returns what comes after a sequence number, oldest first.
func (j *journal) since(seq uint64) []api.Event {
	if seq >= j.next {
		return nil
	}
	var out []api.Event
	first := max(seq+1, j.next-uint64(len(j.events)))
	for n := first; n < j.next; n++ {
		out = append(out, j.events[(n-1)%journalSize])
	}
	return out
}

// Events returns what the journal has after since, and a channel that closes
// when there is more.
func (c *Conductor) Events(_ context.Context, since uint64) ([]api.Event, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.journal.more == nil {
		c.journal.more = make(chan struct{})
	}
	return c.journal.since(since), c.journal.more
}
