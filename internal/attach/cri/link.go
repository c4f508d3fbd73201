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

// The states of this attachment that package connect does not define, as Status prints them.
const (
	StateListing = "listing"
	StatePassing = "passing all calls unchanged"
)

// States lists the states that Status may return.
func States() []string {
	return []string{connect.Idle, connect.Standby, StateListing, StatePassing, connect.Synchronised, connect.Lost}
}

// link is the state of the connection to the runtime.
type link struct {
	log         *slog.Logger
	servesHooks bool         // a runtime proxy calls us
	usesWrapper bool         // the OCI runtime is trimtab-oci
	admit       func() error // returns why this agent may not decide, or nil
	state       connect.State

	runtimeSeen     atomic.Pointer[lastRuntime]
	containersKnown atomic.Bool // the agent knows the running containers; from then on it holds calls
	standby         atomic.Bool // another agent decides
	runtimeAnswers  atomic.Bool // the runtime answers
}

// lastRuntime is the runtime that answered last, and what calls to it can change.
type lastRuntime struct {
	kind         runtimes.Runtime
	capabilities conductor.Capabilities
}

func newLink(log *slog.Logger, hooks, wrapped bool, admit func() error) *link {
	l := &link{log: log, servesHooks: hooks, usesWrapper: wrapped, admit: admit}
	l.noteRuntime(criclient.Runtime{})
	return l
}

// nameOf returns the attachment's name in status, journal and docs.
func nameOf(hooks bool) string {
	if hooks {
		return "hooks"
	}
	return "cri"
}

// capabilities returns what calls to this kind of runtime can change.
func capabilities(hooks, wrapped bool, kind runtimes.Runtime) conductor.Capabilities {
	fields := func(k lifecycle.Kind, call runtimes.Call) lifecycle.FieldSet {
		return lifecycle.FieldsWhere(func(f lifecycle.Field) bool {
			if hooks {
				return HookAnswerCarries(k, f)
			}
			if wrapped && k == lifecycle.CreateContainer && wrapperSets(kind, f) {
				return true
			}
			return Carries(k, f) && kind.AppliesField(runtimes.CRI, call, f)
		})
	}
	updates := fields(lifecycle.UpdateContainer, runtimes.Request)
	return conductor.Capabilities{
		Name: nameOf(hooks), Create: fields(lifecycle.CreateContainer, runtimes.Create), Update: updates, Copy: updates,
		WhyNotAccepted: func(c runtimes.Call, v lifecycle.Value) string {
			if hooks && c != runtimes.Push && v.Field == lifecycle.MemoryLimit && v.Int < 0 {
				return "runtime proxies drop a memory limit below 0 from the answer of a hook server"
			}
			return kind.WhyNotAccepted(runtimes.CRI, c, v)
		},
		HoldsStart: true, RemovesEnv: true, AsksBeforePod: true,
	}
}

// noteRuntime notes which runtime answers.
func (l *link) noteRuntime(r criclient.Runtime) {
	can := capabilities(l.servesHooks, l.usesWrapper, r.Kind)
	can.About = r.About
	l.runtimeSeen.Store(&lastRuntime{r.Kind, can})
}

// checkAdmission returns why this agent may not decide, or nil if it may.
func (l *link) checkAdmission() error {
	err := l.admit()
	l.standby.Store(err != nil)
	return err
}

// enter moves to a state; Status returns the error until the attachment works again.
func (l *link) enter(state string, err error) {
	_ = l.state.Enter(l.log, "cri attachment", state, err)
}

// isNew reports whether an error differs from the one in Status.
func (l *link) isNew(err error) bool {
	_, last := l.state.Get()
	return last == nil || last.Error() != err.Error()
}

// splitSupported splits values into those that the runtime supports in a call, and all others. The others would
// fail the call, or the runtime would drop them.
func (l *link) splitSupported(c runtimes.Call, values []lifecycle.Value) (send, unsupported []lifecycle.Value) {
	kind := l.runtimeSeen.Load().kind
	for _, v := range values {
		if kind.WhyNotAccepted(runtimes.CRI, c, v) == "" {
			send = append(send, v)
		} else {
			unsupported = append(unsupported, v)
		}
	}
	return send, unsupported
}
