package route

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Capabilities are what an attachment can do together with the runtime behind it.
// The attachment fills them in.
type Capabilities struct {
	Name  string // of the attachment
	About string // names the runtime and its version; "" if that is not known
	// Create and Update are the fields that answers to these events can hold, and
	// that the runtime applies. Update also counts for updates of other containers.
	Create, Update lifecycle.FieldSet
	// Copy are the fields that Runtime.Update can write into the runtime's stored copy.
	Copy lifecycle.FieldSet
	// Disabled are the calls whose answers change nothing but the record of their
	// container: the configuration has disabled their stages.
	Disabled []runtimes.Call
	// Takes says why the runtime does not accept a value of a field that is
	// carried: a call with it would fail, or succeed without it. It returns "" if
	// the runtime accepts the value; nil accepts all.
	Takes func(runtimes.Call, lifecycle.Value) (why string)
	// HoldsStart: a start can wait until the answer's values for the container
	// itself (in Others) are in the runtime's stored copy. With such an attachment
	// a cgroup comes with the start; with others it exists before, and is written.
	HoldsStart bool
	// Piggybacks: the runtime writes an answer's values for other containers,
	// running ones included, before it handles another event. Without it, only
	// Runtime.Update updates them.
	Piggybacks bool
	// RemovesEnv: the runtime can remove a variable of a container's environment.
	// NRI has a mark for it, which its runtimes (0.12.5) drop.
	RemovesEnv bool
	// AsksBeforePod: BeforePod is called before a sandbox is created, so the
	// runtime gets its answer. Otherwise sandboxes are reported when they exist.
	AsksBeforePod bool
	// AnswersWithin is how long the runtime waits for the answer to one event
	// before it continues without it; 0 for no limit.
	AnswersWithin time.Duration
}

// Stamps reports whether containers carry a record. If not, the checkpoint has it.
func (c *Capabilities) Stamps() bool { return c.Create.Has(lifecycle.Annotation) }

// Refuses says why a value is not sent to the runtime with a call; "" if it is.
func (c *Capabilities) Refuses(call runtimes.Call, v lifecycle.Value) (why string) {
	if c.Takes == nil {
		return ""
	}
	return c.Takes(call, v)
}
