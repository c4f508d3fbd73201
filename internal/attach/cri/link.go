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

// The names of the states that this attachment has in addition to those of package connect. Status returns these names.
const (
	StateListing = "listing"
	StatePassing = "passing all calls unchanged"
)

// States lists the states that Status may return.
func States() []string {
	return []string{connect.StateIdle, connect.StateStandby, StateListing, StatePassing, connect.StateSynchronised, connect.StateLost}
}

// link is the state of the connection to the runtime, and what the runtime supports.
type link struct {
	log         *slog.Logger
	servesHooks bool         // the agent is the hook server of a runtime proxy
	usesWrapper bool         // the OCI runtime is trimtab-oci
	admit       func() error // returns why this agent may not decide, or nil
	state       connect.State

	lastRuntime     atomic.Pointer[lastRuntime]
	containersKnown atomic.Bool // the agent knows the running containers; from then on it holds calls
	standby         atomic.Bool // another agent decides
	runtimeAnswers  atomic.Bool // the runtime answers
}

// lastRuntime is the runtime that answered last, and the fields that the attachment can change in it.
type lastRuntime struct {
	kind         runtimes.Runtime
	capabilities conductor.Capabilities
}

// newLink returns the link of an attachment whose runtime has not answered yet.
func newLink(log *slog.Logger, hooks, wrapped bool, admit func() error) *link {
	l := &link{log: log, servesHooks: hooks, usesWrapper: wrapped, admit: admit}
	l.noteRuntime(criclient.Runtime{})
	return l
}

// attachmentName returns the attachment's name in status, journal and docs.
func attachmentName(hooks bool) string {
	if hooks {
		return "hooks"
	}
	return "cri"
}

// capabilities returns what an attachment can change in this kind of runtime. hooks means that a runtime proxy calls
// the agent. wrapped means that the OCI runtime is trimtab-oci.
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
	updates := fields(lifecycle.UpdateContainer, runtimes.KubeletUpdate)
	return conductor.Capabilities{
		Name: attachmentName(hooks), Create: fields(lifecycle.CreateContainer, runtimes.CreateCall), Update: updates, Copy: updates,
		WhyNotAccepted: func(c runtimes.Call, v lifecycle.Value) string {
			if hooks && c != runtimes.AgentUpdate && v.Field == lifecycle.MemoryLimit && v.Int < 0 {
				return "runtime proxies drop a memory limit below 0 from the answer of a hook server"
			}
			return kind.WhyNotAccepted(runtimes.CRI, c, v)
		},
		HoldsStart: true, RemovesEnv: true, AsksBeforePod: true,
	}
}

// noteRuntime stores the runtime that answers, and what the attachment can change in it.
func (l *link) noteRuntime(r criclient.Runtime) {
	can := capabilities(l.servesHooks, l.usesWrapper, r.Kind)
	can.RuntimeName = r.About
	l.lastRuntime.Store(&lastRuntime{r.Kind, can})
}

// checkAdmission returns why this agent may not decide, or nil if it may.
func (l *link) checkAdmission() error {
	err := l.admit()
	l.standby.Store(err != nil)
	return err
}

// enter sets the state of the attachment. Status then returns err until the attachment works again.
func (l *link) enter(state string, err error) {
	_ = l.state.Enter(l.log, "the state of the CRI attachment has changed", state, err)
}

// isNewError reports whether err differs from the last error of the attachment.
func (l *link) isNewError(err error) bool {
	_, last := l.state.Get()
	return last == nil || last.Error() != err.Error()
}

// splitSupported splits values into those that the runtime supports in a call (send), and the others (unsupported).
// With an unsupported value, the runtime would fail the call or ignore the value.
func (l *link) splitSupported(c runtimes.Call, values []lifecycle.Value) (send, unsupported []lifecycle.Value) {
	kind := l.lastRuntime.Load().kind
	for _, v := range values {
		if kind.WhyNotAccepted(runtimes.CRI, c, v) == "" {
			send = append(send, v)
		} else {
			unsupported = append(unsupported, v)
		}
	}
	return send, unsupported
}
