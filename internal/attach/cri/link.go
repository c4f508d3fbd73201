package cri

import (
	"log/slog"
	"sync/atomic"

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

	met     atomic.Pointer[met]
	known   atomic.Bool // what runs; from then on calls are held
	standby atomic.Bool // another agent decides
	live    atomic.Bool // the runtime answers
}

// met is the runtime that answered last, and what calls can do with it.
type met struct {
	kind runtimes.Runtime
	can  conductor.Capabilities
}

func newLink(log *slog.Logger, hooks bool, admit func() error) *link {
	l := &link{log: log, hooks: hooks, admit: admit}
	l.meet(criclient.Runtime{})
	return l
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

// meet takes in which runtime answers.
func (l *link) meet(r criclient.Runtime) {
	can := capabilities(l.hooks, r.Kind)
	can.About = r.About
	l.met.Store(&met{r.Kind, can})
}

// admitted asks whether this agent may decide.
func (l *link) admitted() error {
	err := l.admit()
	l.standby.Store(err != nil)
	return err
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
	kind := l.met.Load().kind
	for _, v := range values {
		if kind.Takes(runtimes.CRI, c, v) == "" {
			send = append(send, v)
		} else {
			left = append(left, v)
		}
	}
	return send, left
}
