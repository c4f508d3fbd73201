package nodeview

import (
	"sync"

	"github.com/trimtab/trimtab/internal/report/api"
)

// journalSize is how many events are stored.
const journalSize = 1024

// Journal stores the latest events for `trimtab events`.
type Journal struct {
	mu      sync.Mutex
	events  []api.Event   // sequence number n is at (n-1) modulo journalSize
	lastSeq uint64        // sequence number of the newest event
	changed chan struct{} // closed when an event is added; nil until Since is called again
}

// Add adds an event, and sets its sequence number.
func (j *Journal) Add(e api.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lastSeq++
	e.Seq = j.lastSeq
	if len(j.events) < journalSize {
		j.events = append(j.events, e)
	} else {
		j.events[(e.Seq-1)%journalSize] = e
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// Since returns the stored events after a sequence number, oldest first, and a channel that is closed when the next
// event is added.
func (j *Journal) Since(seq uint64) (out []api.Event, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n := max(seq, j.lastSeq-uint64(len(j.events))); n < j.lastSeq; n++ {
		out = append(out, j.events[n%journalSize])
	}
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return out, j.changed
}
