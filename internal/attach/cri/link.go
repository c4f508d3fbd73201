package cri

import (
	"log/slog"
	"sync"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// The states of an attachment, as Status prints them.
const (
	StateIdle         = connect.Idle
	StateStandby      = connect.Standby
	StateListing      = "listing"
	StatePassing      = "passing everything through"
	StateSynchronised = connect.Synchronised
	StateLost         = connect.Lost
)

// States lists the states Status may return.
func States() []string {
	return []string{StateIdle, StateStandby, StateListing, StatePassing, StateSynchronised, StateLost}
}

// link is how the attachment stands to its runtime.
type link struct {
	log   *slog.Logger
	hooks bool         // a runtime proxy asks
	admit func() error // whether this agent may decide
	state connect.State

	mu      sync.Mutex // guards all below
	runtime string
	kind    runtimes.Runtime // what it takes
	can     conductor.Capabilities
	known   bool // what runs; from then on calls are held
	standby bool // another agent decides
	live    bool // the runtime answers
}

func newLink(log *slog.Logger, hooks bool, admit func() error) *link {
	return &link{log: log, hooks: hooks, admit: admit, can: capabilities(hooks, runtimes.Runtime{})}
}

// nameOf is the attachment's name in status, journal and docs.
func nameOf(hooks bool) string {
	if hooks {
		return "hooks"
	}
	return "cri"
}

// capabilities are those with one runtime.
func capabilities(hooks bool, kind runtimes.Runtime) conductor.Capabilities {
	fields := func(k lifecycle.Kind, call runtimes.Call) lifecycle.FieldSet {
		return lifecycle.FieldsWhere(func(f lifecycle.Field) bool {
			if hooks {
				return CarriesHooks(k, f)
			}
			return Carries(k, f) && kind.Has(runtimes.CRI, call, f)
		})
	}
	updates := fields(lifecycle.UpdateContainer, runtimes.Request)
	return conductor.Capabilities{
		Name: nameOf(hooks), Create: fields(lifecycle.CreateContainer, runtimes.Create), Update: updates, Copy: updates,
		Takes: func(c runtimes.Call, v lifecycle.Value) string {
			if hooks && c != runtimes.Push && v.Field == lifecycle.MemoryLimit && v.Int < 0 {
				return "runtime proxies drop a memory limit below 0 from the answer of a hook server"
			}
			return kind.Takes(runtimes.CRI, c, v)
		},
		HoldsStart: true, RemovesEnv: true, AsksBeforePod: true,
	}
}

// now is how things stand: whether it is known what runs, whether another agent
// decides, and whether the runtime answers.
func (l *link) now() (known, standby, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, l.standby, l.live
}

// meet takes in which runtime answers.
func (l *link) meet(r criclient.Runtime) {
	can := capabilities(l.hooks, r.Kind)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runtime, l.kind, l.can = r.About, r.Kind, can
}

func (l *link) setKnown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = true
}

// admitted asks whether this agent may decide.
func (l *link) admitted() error {
	err := l.admit()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standby = err != nil
	return err
}

func (l *link) setLive(live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = live
}

// enter moves to a state; an error stays for people to read until it works.
func (l *link) enter(state string, err error) {
	_ = l.state.Enter(l.log, "cri attachment", state, err)
}

// isNew reports whether an error is not the one that Status has.
func (l *link) isNew(err error) bool {
	_, last := l.state.Get()
	return last == nil || last.Error() != err.Error()
}

// taken parts values into those the runtime takes in a call and those that would
// fail the call or be dropped.
func (l *link) taken(c runtimes.Call, values []lifecycle.Value) (send, left []lifecycle.Value) {
	l.mu.Lock()
	kind := l.kind
	l.mu.Unlock()
	for _, v := range values {
		if kind.Takes(runtimes.CRI, c, v) == "" {
			send = append(send, v)
		} else {
			left = append(left, v)
		}
	}
	return send, left
}
