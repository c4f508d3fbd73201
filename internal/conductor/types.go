package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// RecordKey is the annotation that has a container's record, so that the runtime
// itself returns our state after a restart.
const RecordKey = intent.RecordKey

// Capabilities are what an attachment can do together with the runtime behind it.
type Capabilities = route.Capabilities

// Carrier is an attachment as the conductor sees it: its name, and what it can do
// now, which depends on the connected runtime. What it cannot carry goes to the
// keeper, or is reported.
type Carrier interface {
	Name() string
	Capabilities() Capabilities
}

// Settings are decided values for one container, which its runtime id names.
type Settings struct {
	Container string
	Values    []lifecycle.Value
}

// Answer is what an attachment sends back for one event.
type Answer struct {
	// Values are for the event's own container: an adjustment at
	// CreateContainer, an update at UpdateContainer.
	Values []lifecycle.Value
	// Others are for other existing containers: those that have not started, whose
	// cgroup the keeper cannot reach yet; and, on a node that is never idle, one
	// whose copy in the runtime is out of date (Capabilities.Piggybacks).
	Others []Settings
	// Owns says, at StartContainer, that the container owns CPUs: no other
	// container may still be starting with them when it runs.
	Owns bool
	// Op names the event in logs and journal.
	Op logkey.ID
}

// Rejection is a policy's refusal: it fails the pod's request, which failures of
// ours do not.
type Rejection struct{ Reason string }

// Error returns the sentence the runtime passes on to the kubelet.
func (r *Rejection) Error() string { return "trimtab: " + r.Reason }

// Handler is the conductor as attachments see it.
type Handler interface {
	// Handle decides one event and applies what must be applied before the answer.
	// It returns a *Rejection if a policy refuses, never another error: faults of
	// ours are reported and answered with what is known. For a Synchronize it
	// replaces the pods in the event's list by copies that hold nothing of the
	// message they came in.
	Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error)
	// Wants lists the kinds of events the active hooks need.
	Wants() []lifecycle.Kind
	// Attached and Detached report the start and end of the connection to a
	// runtime.
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

// Looker is a Runtime whose changed resources have to be asked for.
type ResourcePoller interface {
	// Look asks for a container's resources soon, without waiting. It ignores ids
	// that are not a container's.
	PollResources(id string)
}
