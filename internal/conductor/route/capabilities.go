package route

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Capabilities describes what an attachment (the agent's connection to a runtime: NRI, CRI proxy or watching) and its
// runtime can do. The attachment fills it in.
type Capabilities struct {
	Name        string // the attachment's name
	RuntimeName string // the runtime's name and version; "" if they are not known
	// Create and Update are the fields that the runtime applies if the answer to CreateContainer or UpdateContainer
	// has them. Update also applies to the values for other containers in an answer.
	Create, Update lifecycle.FieldSet
	// Copy are the fields that the agent can change in the stored copy of a container. The stored copy is what the
	// runtime stores of the container's resources. The agent changes the copy by calls of conductor.Runtime.Update.
	Copy lifecycle.FieldSet
	// UnchangedCalls are the runtime calls to which the agent adds no values, because the option disabledStages lists
	// these calls. The agent's answer to such a call has at most the annotation with the container's record.
	UnchangedCalls []runtimes.Call
	// WhyNotAccepted returns the reason why the runtime does not accept one value in a call: the call would fail, or
	// the runtime would ignore the value. The runtime can accept other values of the same field in this call. The
	// reason is "" if the runtime accepts the value. If WhyNotAccepted is nil, the runtime accepts all values.
	WhyNotAccepted func(runtimes.Call, lifecycle.Value) (why string)
	// HoldsStart means that the attachment can delay the start of a container until the runtime has stored the agent's
	// last values for the container (conductor.Answer.Others). With such an attachment, the start creates the
	// container's cgroup. With other attachments, the cgroup exists before the start, and the agent writes to the
	// cgroup's files.
	HoldsStart bool
	// Piggybacks means that an answer can also have values for other containers that run. The runtime applies these
	// values before it handles the next event. If Piggybacks is false, an answer has values only for other containers
	// that have not started, and the agent updates running containers by calls of conductor.Runtime.Update.
	Piggybacks bool
	// RemovesEnv means that the attachment can remove a variable from a container's environment. NRI can mark a
	// variable for removal, but runtimes with NRI 0.12.5 ignore the mark.
	RemovesEnv bool
	// OthersAnswer means that plugins of other vendors also answer a CreateContainer event. The runtime fails the
	// creation if two plugins set the same field.
	OthersAnswer bool
	// AsksBeforePod means that the attachment calls BeforePod before a sandbox is created, and passes the answer to
	// the runtime. If AsksBeforePod is false, the agent learns of a sandbox only when the sandbox exists.
	AsksBeforePod bool
	// AnswerTimeout is how long the runtime waits for the answer to an event. After this time the runtime continues
	// without an answer. 0 means no limit.
	AnswerTimeout time.Duration
}

// CarriesRecords reports whether the agent stores the record of its decisions as an annotation of the container. If
// not, the agent's checkpoint file stores the record.
func (c *Capabilities) CarriesRecords() bool { return c.Create.Has(lifecycle.Annotation) }

// WhyNotSent returns the reason why the agent does not send a value to the runtime with a call; "" if it sends the
// value.
func (c *Capabilities) WhyNotSent(call runtimes.Call, v lifecycle.Value) (why string) {
	if c.WhyNotAccepted == nil {
		return ""
	}
	return c.WhyNotAccepted(call, v)
}
