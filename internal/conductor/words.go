package conductor

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// RecordKey is the annotation a container's record is stamped into, so that
// the runtime itself hands our state back after a restart.
const RecordKey = intent.RecordKey

// Carrier is what an attachment declares about itself: which decided fields it
// can carry in its answer to an event of the given kind, and the runtime behind
// it obeys. What it cannot carry goes to the keeper, or is reported. About names
// that runtime and its version.
type Carrier interface {
	Name() string
	About() string
	Carries(kind lifecycle.Kind, f lifecycle.Field) bool
}

// Copier is what a Carrier may declare besides: which fields Runtime.Update can
// bring into the runtime's stored copy, where that differs from what answers
// carry at UpdateContainer.
type Copier interface {
	Copies(f lifecycle.Field) bool
}

// copies reports whether the runtime's stored copy can be given a field.
func copies(c Carrier, f lifecycle.Field) bool {
	if own, ok := c.(Copier); ok {
		return own.Copies(f)
	}
	return c.Carries(lifecycle.UpdateContainer, f)
}

// StartHolder is a Carrier that may hold a start until what its answer says of
// the container itself (in Others) is in the runtime's stored copy. There a
// cgroup comes with the start; elsewhere it is there before, and written.
type StartHolder interface {
	HoldsStart() bool
}

// holdsStart reports whether an attachment can hold a start.
func holdsStart(c Carrier) bool {
	h, ok := c.(StartHolder)
	return ok && h.HoldsStart()
}

// AlongTaker is a Carrier whose runtime writes what an answer says of other
// containers before it handles another event, those that run included. Where it
// does not, the runtime is told by Runtime.Update alone.
type AlongTaker interface {
	TakesAlong() bool
}

func takesAlong(c Carrier) bool {
	t, ok := c.(AlongTaker)
	return ok && t.TakesAlong()
}

// TakerAway is a Carrier that can take away a variable of a container's
// environment. NRI has words for it, and its runtimes (0.12.5) drop them.
type TakerAway interface {
	TakesAway() bool
}

func takesAway(c Carrier) bool {
	t, ok := c.(TakerAway)
	return ok && t.TakesAway()
}

// Patient is a Carrier whose runtime goes on without an answer after a while.
type Patient interface {
	// AnswersWithin is how long the runtime waits for the answer to one event; 0 where
	// there is no end.
	AnswersWithin() time.Duration
}

// PodAsker is a Carrier that asks BeforePod before a sandbox is made. There the
// answer reaches the runtime; elsewhere an event tells of the sandbox when it exists.
type PodAsker interface {
	AsksBeforePod() bool
}

// stamps reports whether containers made through an attachment carry a record.
// Where they do not, the checkpoint has it.
func stamps(c Carrier) bool { return c.Carries(lifecycle.CreateContainer, lifecycle.Annotation) }

// Settings are decided values for one container, addressed by its runtime id.
type Settings struct {
	Container string
	Values    []lifecycle.Value
}

// Answer is what an attachment sends back for one event.
type Answer struct {
	// Values are for the event's own container: an adjustment at
	// CreateContainer, an update at UpdateContainer.
	Values []lifecycle.Value
	// Others are for other containers that exist: those that have not started,
	// whose cgroup the keeper cannot reach yet, and where a node is never quiet
	// one whose copy in the runtime is out of date (AlongTaker).
	Others []Settings
	// Owns says, at StartContainer, that the container owns CPUs: nobody else may
	// still be starting with them when it runs.
	Owns bool
	// Op names the event in logs and journal.
	Op logkey.ID
}

// Rejection is a policy's no: it fails the pod's request, where failures of
// ours do not.
type Rejection struct{ Reason string }

// Error returns the sentence the runtime passes on to the kubelet.
func (r *Rejection) Error() string { return "trimtab: " + r.Reason }

// Handler is the conductor as attachments see it.
type Handler interface {
	// Handle decides one event and applies what must be applied before the
	// answer. It returns a *Rejection where a policy refuses, never another
	// error: faults of ours are reported and answered with what is known. Of a
	// Synchronize it replaces the pods in the event's list by copies that hold
	// nothing of the message they came in.
	Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error)
	// Wants lists the kinds of events the active hooks need.
	Wants() []lifecycle.Kind
	// Attached and Detached tell of the connection to a runtime.
	Attached(from Carrier, r Runtime)
	Detached(from Carrier, err error)
}

// Runtime is a connected runtime as the conductor sees it.
type Runtime interface {
	// Update sends new values of live containers to the runtime, so that its
	// stored copy agrees with the kernel. It returns the ids it refused.
	Update(ctx context.Context, what []Settings) (failed []string, err error)
	// About names the runtime and its version, for status.
	About() string
}

// Looker is a Runtime that learns of changed resources by asking.
type Looker interface {
	// Look has a container's resources asked for soon. Ids that are not a
	// container's are passed over. It does not wait.
	Look(id string)
}
