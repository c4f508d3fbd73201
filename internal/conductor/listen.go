package conductor

import (
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/recording"
)

// listeners are the active recordings of events.
type listeners struct {
	recording.Feed

	nodeNow func() recording.Node // see Options.NodeNow
}

// Listen begins a recording. The subscription gets the present state and every later event. startNode describes the
// node at the beginning. The caller must close the subscription.
func Listen(c *Conductor) (s *recording.Subscription, startNode recording.Node) {
	_, _ = c.run(internalEvent(lifecycle.WhatIf, func() {
		s = c.listeners.Subscribe(c.node.state.Copy())
		startNode = c.listeners.nodeNow()
	}, nil))
	return s, startNode
}

// newEntry makes the entry of an event for recordings, with the event and its facts; nil if no recording is active.
func (l *listeners) newEntry(s *engine.State, w *work) *recording.RecordedEvent {
	if !l.Listening() {
		return nil
	}
	return recording.NewRecordedEvent(s, w.report.Event, w.facts)
}

// record adds the decision to the entry of an event for recordings.
func (w *work) record(e *recording.RecordedEvent, s *engine.State) {
	if e != nil {
		e.Time, e.Op, e.From, e.Decision = w.start, w.report.Op.String(), w.report.From, recording.DecisionOf(s, w.report.Plan)
		w.recordingEntry = e
	}
}

// publish passes the entry of an event to all recordings.
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
