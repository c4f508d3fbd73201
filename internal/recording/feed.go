package recording

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/trimtab/trimtab/internal/engine"
)

// maxBufferedEvents is the number of events that may wait for one listener. If more events wait, the listener loses
// them.
const maxBufferedEvents = 4096

// Feed passes events to listeners. Publish never blocks. The zero value is ready to use.
type Feed struct {
	listenerCount atomic.Int32

	mu            sync.Mutex // guards the fields below
	subscriptions map[*Subscription]bool
	seq           uint64 // the number of the last published event
}

// Subscription receives the events that are published after a listener subscribed.
type Subscription struct {
	feed      *Feed
	events    chan *RecordedEvent
	seqBefore uint64 // the number of the last event before the subscription
	// State is the engine's state when the subscription began.
	State *engine.State
}

// Listening reports whether there is a listener. Without a listener, the caller need not make a RecordedEvent.
func (f *Feed) Listening() bool { return f.listenerCount.Load() > 0 }

// Subscribe begins a subscription. The caller must close it.
func (f *Feed) Subscribe(state *engine.State) *Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &Subscription{feed: f, events: make(chan *RecordedEvent, maxBufferedEvents), seqBefore: f.seq, State: state}
	if f.subscriptions == nil {
		f.subscriptions = map[*Subscription]bool{}
	}
	f.subscriptions[s] = true
	f.listenerCount.Add(1)
	return s
}

// Close ends a subscription.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if s.feed.subscriptions[s] {
		delete(s.feed.subscriptions, s)
		s.feed.listenerCount.Add(-1)
	}
}

// Publish passes an event to all listeners, except listeners that already have maxBufferedEvents unread events.
func (f *Feed) Publish(e *RecordedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq = f.seq
	for s := range f.subscriptions {
		select {
		case s.events <- e:
		default:
		}
	}
}

// Write writes a recording until ctx ends, and then returns nil. It calls flush when no more events wait.
func (s *Subscription) Write(ctx context.Context, w io.Writer, h Header, flush func() error) error {
	h.APIVersion, h.Kind, h.State = APIVersion, KindHeader, s.State.Save()
	s.State = nil // frees the memory of the state
	text, err := Encode(&h)
	if err != nil {
		return fmt.Errorf("write the first line of a recording: %w", err)
	}
	h.State = nil
	if _, err := w.Write(append(text, '\n')); err != nil {
		return err
	}
	enc := encoder{}
	for last := s.seqBefore; ; {
		if len(s.events) == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.events:
			here := *e
			here.Seq -= s.seqBefore
			text, err := here.line(enc, e.Seq-last-1, h.WithoutEnv)
			if err != nil {
				return fmt.Errorf("write event %s: %w", e.Op, err)
			}
			if _, err := w.Write(append(text, '\n')); err != nil {
				return err
			}
			last = e.Seq
		}
	}
}
