package route

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Capabilities are what an attachment can do together with the runtime behind it. The
// attachment sets them.
type Capabilities struct {
	Name  string // the attachment's name
	About string // the runtime and its version; "" if that is not known
	// Create and Update are the fields that answers to these events can hold, and that the
	// runtime applies. Update also counts for updates of other containers.
	Create, Update lifecycle.FieldSet
	// Copy are the fields that conductor.Runtime.Update can write into the runtime's stored copy.
	Copy lifecycle.FieldSet
	// UnchangedCalls are the runtime calls whose stages the configuration has disabled. The answers to these calls
	// hold at most the record of the container.
	UnchangedCalls []runtimes.Call
	// WhyNotAccepted returns the reason why the runtime does not accept a value in a call, although the call has
	// the field: the call would fail, or the runtime would ignore the value. It returns "" if the runtime accepts
	// the value. If WhyNotAccepted is nil, the runtime accepts all values.
	WhyNotAccepted func(runtimes.Call, lifecycle.Value) (why string)
	// HoldsStart reports that the runtime can delay a start until its stored copy has the
	// answer's values for the container (in Others). With such an attachment the start creates
	// the cgroup. With other attachments the cgroup exists before the start, and the keeper
	// writes it.
	HoldsStart bool
	// Piggybacks means that the runtime writes an answer's values for other containers, also running ones,
	// before it handles another event. Otherwise only Runtime.Update updates them.
	Piggybacks bool
	// RemovesEnv means that the runtime can remove a variable from a container's environment. NRI can mark a variable
	// for removal, but runtimes with NRI 0.12.5 ignore the mark.
	RemovesEnv bool
	// OthersAnswer means that other plugins also answer a creation. The runtime fails the creation if two plugins set
	// the same field.
	OthersAnswer bool
	// AsksBeforePod means that the attachment calls BeforePod before a sandbox is created, and passes the answer to
	// the runtime. Otherwise the runtime reports a sandbox only when it exists.
	AsksBeforePod bool
	// AnswersWithin is how long the runtime waits for the answer to an event. After that the runtime continues
	// without an answer. 0 means no limit.
	AnswersWithin time.Duration
}

// CarriesRecords reports whether containers carry their record as an annotation. If not, the checkpoint stores it.
func (c *Capabilities) CarriesRecords() bool { return c.Create.Has(lifecycle.Annotation) }

// Refuses returns the reason why a value is not sent to the runtime with a call; "" if it is
// sent.
func (c *Capabilities) Refuses(call runtimes.Call, v lifecycle.Value) (why string) {
	if c.WhyNotAccepted == nil {
		return ""
	}
	return c.WhyNotAccepted(call, v)
}
