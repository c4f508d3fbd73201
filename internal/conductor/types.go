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

// Carrier is an attachment (NRI, CRI proxy or bypass) as the conductor sees it: its name, and its current capabilities,
// which depend on the connected runtime. If the attachment cannot carry a value, the keeper writes the value or the
// agent reports it.
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
	// Others are values for other existing containers. If such a container has not started, its cgroup
	// may not exist yet, so the keeper cannot write them. On a node that is never idle, Others may also have
	// a container whose resources in the runtime are outdated (Capabilities.Piggybacks).
	Others []Settings
	// OwnsCPUs reports, at StartContainer, that the container owns CPUs. When it runs, no other
	// container may still be starting on these CPUs.
	OwnsCPUs bool
	// Op is the number of the event in the log and in the journal (op=).
	Op logkey.ID
}

// Rejection is the refusal of a policy or of a hook server. It makes the runtime fail the kubelet's request. An error
// of the agent becomes a Rejection only at a creation with failurePolicy.agent: fail.
type Rejection struct{ Reason string }

// Error returns the text that the runtime passes on to the kubelet.
func (r *Rejection) Error() string { return "trimtab: " + r.Reason }

// Handler is the conductor as attachments see it.
type Handler interface {
	// Handle decides one event, and applies what must be in force before the answer. Its only error is a
	// *Rejection. The agent reports its own errors and answers without changes, except in the case that
	// Rejection describes. For a Synchronize, Handle replaces the pods in the event's list by copies that keep
	// no memory of the runtime's message.
	Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error)
	// Wants lists the kinds of events that the active hooks need.
	Wants() []lifecycle.Kind
	// Attached reports the start of the connection to a runtime, and Detached its end.
	Attached(from Carrier, r Runtime)
	Detached(from Carrier, err error)
}

// Runtime is a connected runtime as the conductor sees it.
type Runtime interface {
	// Update sends new values of live containers to the runtime, so that the values which it has stored
	// agree with the kernel. failed has the ids of the containers whose update the runtime refused.
	Update(ctx context.Context, what []Settings) (failed []string, err error)
	// About returns the runtime's name and version, for status.
	About() string
}

// ResourcePoller is a Runtime that reports no updates of containers by other clients, so that the agent must
// read their resources again.
type ResourcePoller interface {
	// Poll makes the attachment read a container's resources soon. It does not wait, and ignores ids that
	// are not a container's.
	Poll(id string)
}
