package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// RecordKey is the annotation with a container's record. The runtime returns it after a
// restart.
const RecordKey = intent.RecordKey

// Capabilities are what an attachment can do together with the runtime behind it.
type Capabilities = route.Capabilities

// Carrier is an attachment as the conductor sees it: its name, and its current capabilities,
// which depend on the connected runtime. The keeper writes values that the attachment cannot
// carry, or the agent reports them.
type Carrier interface {
	Name() string
	Capabilities() Capabilities
}

// Settings are decided values for one container.
type Settings struct {
	Container string
	Values    []lifecycle.Value
}

// Answer is what an attachment returns for one event.
type Answer struct {
	// Values are for the event's own container: an adjustment at CreateContainer, an update at
	// UpdateContainer.
	Values []lifecycle.Value
	// Others are for other existing containers. Some have not started, so the keeper cannot
	// reach their cgroup yet. On a node that is never idle, Others may also have a container whose
	// stored copy in the runtime is outdated (Capabilities.Piggybacks).
	Others []Settings
	// OwnsCPUs reports, at StartContainer, that the container owns CPUs. When it runs, no other
	// container may still be starting on these CPUs.
	OwnsCPUs bool
	// Op names the event in logs and journal.
	Op logkey.ID
}

// Rejection is the refusal of a policy or of a hook server. It fails the pod's request. An error of the agent does
// that only at a creation with failurePolicy.agent: fail; it is then a Rejection, too.
type Rejection struct{ Reason string }

// Error returns the text that the runtime passes on to the kubelet.
func (r *Rejection) Error() string { return "trimtab: " + r.Reason }

// Handler is the conductor as attachments see it.
type Handler interface {
	// Handle decides one event, and applies what must be in force before the answer. It returns
	// a *Rejection if a policy refuses, and never another error: errors of the agent are
	// reported and answered with what is known. For a Synchronize it replaces the pods in the
	// event's list by copies that keep no memory of the runtime's message.
	Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error)
	// Wants lists the kinds of events that the active hooks need.
	Wants() []lifecycle.Kind
	// Attached and Detached report the start and end of the connection to a runtime.
	Attached(from Carrier, r Runtime)
	Detached(from Carrier, err error)
}

// Runtime is a connected runtime as the conductor sees it.
type Runtime interface {
	// Update sends new values of live containers to the runtime, so that its stored copy agrees
	// with the kernel. It returns the ids that it refused.
	Update(ctx context.Context, what []Settings) (failed []string, err error)
	// About returns the runtime's name and version, for status.
	About() string
}

// ResourcePoller is a Runtime that does not report updates, so that changed resources must be
// polled.
type ResourcePoller interface {
	// Poll requests a container's resources soon, without waiting. It ignores ids that
	// are not a container's.
	Poll(id string)
}
