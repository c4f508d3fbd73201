package recording

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/trimtab/trimtab/internal/engine"
)

// buffered is how many events may wait for one listener. A slower listener loses events.
const buffered = 4096

// Feed passes events on to listeners. Publish never waits. The zero value is ready.
type Feed struct {
	listening atomic.Int32

	mu   sync.Mutex // guards all below
	subs map[*Subscription]bool
	seq  uint64
}

// Subscription has the events since a listener subscribed.
type Subscription struct {
	feed    *Feed
	entries chan *Entry
	first   uint64 // the number of the event before the first one
	// State is the state when the subscription began.
	State *engine.State
}

// Listening reports whether there is a listener. Without one, an event costs nothing more.
func (f *Feed) Listening() bool { return f.listening.Load() > 0 }

// Subscribe begins a subscription. The caller closes it.
func (f *Feed) Subscribe(state *engine.State) *Subscription {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &Subscription{feed: f, entries: make(chan *Entry, buffered), first: f.seq, State: state}
	if f.subs == nil {
		f.subs = map[*Subscription]bool{}
	}
	f.subs[s] = true
	f.listening.Add(1)
	return s
}

// Close ends a subscription.
func (s *Subscription) Close() {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if s.feed.subs[s] {
		delete(s.feed.subs, s)
		s.feed.listening.Add(-1)
	}
}

// Publish passes an event on. A listener with too many unread events does not get it.
func (f *Feed) Publish(e *Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	e.Seq = f.seq
	for s := range f.subs {
		select {
		case s.entries <- e:
		default:
		}
	}
}

// Write writes a recording until ctx ends, which is no error. It calls flush when no more events wait.
func (s *Subscription) Write(ctx context.Context, w io.Writer, h Header, flush func() error) error {
	h.APIVersion, h.Kind, h.State = APIVersion, KindHeader, s.State.Save()
	s.State = nil // it is large
	text, err := Encode(&h)
	if err != nil {
		return fmt.Errorf("write the first line of a recording: %w", err)
	}
	h.State = nil
	if _, err := w.Write(append(text, '\n')); err != nil {
		return err
	}
	by := encoder{}
	for last := s.first; ; {
		if len(s.entries) == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.entries:
			here := *e
			here.Seq -= s.first
			text, err := here.line(by, e.Seq-last-1, h.WithoutEnv)
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
