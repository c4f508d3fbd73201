package conductor

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/recording"
)

// listeners are the active recordings of events.
type listeners struct {
	recording.Feed

	nodeNow func() recording.Node // Options.NodeNow
}

// Listen begins a recording. The subscription gets the present state and every later event, and now describes the
// node. The caller closes the subscription.
func Listen(c *Conductor) (s *recording.Subscription, now recording.Node) {
	_, _ = c.run(internalEvent(lifecycle.WhatIf, func() {
		s = c.listeners.Subscribe(c.node.state.Copy())
		now = c.listeners.nodeNow()
	}, nil))
	return s, now
}

// newEntry begins the entry of an event for recordings; nil if no recording is active.
func (l *listeners) newEntry(s *engine.State, w *work) *recording.RecordedEvent {
	if !l.Listening() {
		return nil
	}
	return recording.NewRecordedEvent(s, w.report.Event, w.facts)
}

// record completes the entry of an event that was decided.
func (w *work) record(e *recording.RecordedEvent, s *engine.State) {
	if e != nil {
		e.Time, e.Op, e.From, e.Decision = w.start, w.report.Op.String(), w.report.From, recording.DecisionOf(s, w.report.Plan)
		w.recordingEntry = e
	}
}

// publish passes an event to all recordings.
func (l *listeners) publish(w *work) {
	if w.recordingEntry == nil {
		return
	}
	if w.report.Event.Kind == lifecycle.Configure {
		now := l.nodeNow()
		w.recordingEntry.Node = &now
	}
	l.Publish(w.recordingEntry)
	w.recordingEntry = nil
}
