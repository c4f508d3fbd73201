package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// RecordKey is the annotation a container's record is stamped into, so that
// the runtime itself hands our state back after a restart.
const RecordKey = intent.RecordKey

// Capabilities are what an attachment can do together with the runtime behind it.
type Capabilities = route.Capabilities

// Carrier is an attachment as the conductor sees it: its name, and what it can do
// now, which changes with the runtime that it is connected to. What it cannot
// carry goes to the keeper, or is reported.
type Carrier interface {
	Name() string
	Capabilities() Capabilities
}

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
	// one whose copy in the runtime is out of date (Capabilities.Piggybacks).
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
