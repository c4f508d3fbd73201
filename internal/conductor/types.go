package conductor

import (
	"context"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// RecordKey is the key of the annotation with a container's record. The runtime returns the annotation after a restart
// of the agent.
const RecordKey = intent.RecordKey

// Capabilities are what an attachment can do together with the runtime behind it.
type Capabilities = route.Capabilities

// Carrier is an attachment (NRI, CRI proxy or bypass) as the conductor sees it: its name, and its current capabilities,
// which depend on the connected runtime. If the attachment cannot pass a value to the runtime, the keeper writes the
// value to the kernel, or the agent reports the value as not applied.
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
	// Values are for the event's own container: NRI sends them as an adjustment at CreateContainer, and as an
	// update at UpdateContainer.
	Values []lifecycle.Value
	// Others are values for other existing containers. Most of these containers have not started: possibly their
	// cgroups do not exist yet, so the keeper cannot write the values. If the node was not idle for a long time, Others
	// can also have values that the runtime's stored copy of a container lacks (Capabilities.Piggybacks).
	Others []Settings
	// OwnsCPUs reports, at StartContainer, that the container owns CPUs. The attachment must then make sure that no
	// other container is still starting on these CPUs when the container runs.
	OwnsCPUs bool
	// Op is the number of the event, as in the log (op=) and in the journal.
	Op logkey.ID
}

// Rejection is the refusal of a policy or of a hook server. It makes the runtime fail the kubelet's request. An error
// of the agent becomes a Rejection only at a creation with failurePolicy.agent: fail.
type Rejection struct{ Reason string }

// Error returns the text that the runtime passes on to the kubelet.
func (r *Rejection) Error() string { return "trimtab: " + r.Reason }

// Handler is the conductor as attachments see it.
type Handler interface {
	// Handle decides one event, and applies the values that must be in force before the answer. Its only error is a
	// *Rejection. After an error of the agent, the answer has no values, except in the case that Rejection describes.
	// For a Synchronize, Handle replaces the pods in the event's list by copies that do not point into the runtime's
	// message.
	Handle(ctx context.Context, from Carrier, ev lifecycle.Event) (Answer, error)
	// Wants lists the kinds of events that the attachment must report.
	Wants() []lifecycle.Kind
	// An attachment calls Attached when it has connected to a runtime. It calls Detached when the connection has ended;
	// err is nil at an ordinary stop.
	Attached(from Carrier, r Runtime)
	Detached(from Carrier, err error)
}

// Runtime is a connected runtime as the conductor sees it.
type Runtime interface {
	// Update sends new values of live containers to the runtime, so that the runtime's stored copies agree with the
	// kernel. failed has the ids of the containers whose update the runtime refused.
	Update(ctx context.Context, what []Settings) (failed []string, err error)
	// About returns the runtime's name and version, for status.
	About() string
}

// ResourcePoller is a Runtime that does not report when other clients, such as the kubelet, update a container. So the
// agent must read the container's resources again.
type ResourcePoller interface {
	// Poll makes the attachment read a container's resources soon. It does not wait until the attachment has read them.
	// If id is not the id of a container, Poll does nothing.
	Poll(id string)
}
