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
	About string // names the runtime and its version; "" where that is not known
	// Create and Update are the fields that answers to these events can hold, and
	// that the runtime obeys. Update stands for updates of other containers too.
	Create, Update lifecycle.FieldSet
	// Copy are the fields that Runtime.Update can write into the runtime's stored copy.
	Copy lifecycle.FieldSet
	// Disabled are the calls whose answers change nothing but the record of their
	// container: the configuration has disabled their stages.
	Disabled []runtimes.Call
	// Takes says why the runtime does not take a value of a field that is carried: a
	// call with it would fail, or succeed without it. "" where the runtime does;
	// nil where it takes all.
	Takes func(runtimes.Call, lifecycle.Value) (why string)
	// HoldsStart: a start can wait until what the answer says of the container
	// itself (in Others) is in the runtime's stored copy. There a cgroup comes with
	// the start; elsewhere it is there before, and written.
	HoldsStart bool
	// Piggybacks: the runtime writes what an answer says of other containers before
	// it handles another event, those that run included. Where it does not, it is
	// sent updates by Runtime.Update alone.
	Piggybacks bool
	// RemovesEnv: a variable of a container's environment can be taken away. NRI has
	// words for it, and its runtimes (0.12.5) drop them.
	RemovesEnv bool
	// AsksBeforePod: BeforePod is asked before a sandbox is made. There its answer
	// reaches the runtime; elsewhere sandboxes are reported when they exist.
	AsksBeforePod bool
	// AnswersWithin is how long the runtime waits for the answer to one event, and
	// then goes on without it; 0 where there is no end.
	AnswersWithin time.Duration
}

// Stamps reports whether containers carry a record. Where they do not, the
// checkpoint has it.
func (c *Capabilities) Stamps() bool { return c.Create.Has(lifecycle.Annotation) }

// Refuses says why a value is not sent to the runtime with a call; "" where it is.
func (c *Capabilities) Refuses(call runtimes.Call, v lifecycle.Value) (why string) {
	if c.Takes == nil {
		return ""
	}
	return c.Takes(call, v)
}
