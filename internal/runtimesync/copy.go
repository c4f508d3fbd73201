package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy is the runtime's stored copy of one container, and what is known about the runtime's progress.
type Copy struct {
	ID     string     // the container's id
	Stored FieldTexts // what the runtime has stored
	// Pending has the values of an update that is in progress: those of the request and of the answer. It is nil if
	// there is no update. The runtime writes the values some time after the answer.
	Pending FieldTexts
	// RuntimeOnly means that the kernel lets only the runtime write the container's cgroup (cgroup.RuntimeOnly). So
	// the runtime gets every value that it can carry.
	RuntimeOnly bool
	Recorded    bool // a record has its pristine resources
	// CreatePending means that its creation was answered, and that the runtime may not have stored it yet.
	CreatePending bool
	maybeIgnored  bool // the runtime may have ignored a value that was sent before it stored the container

	queued      bool          // it is in the queue
	piggybacked bool          // its values were sent in an answer; no runtime reports whether it accepted them
	tries       int           // failures in a row
	pause       time.Duration // before the next try; 0 if the runtime accepted the last update
}

// unknownText is the text of a value that the runtime may have ignored. It equals no value, so the next value is
// sent, whatever it is.
const unknownText = "?"

// Has reports whether the runtime's copy has a value.
func (c *Copy) Has(v lifecycle.Value) bool { return c.Stored[v.Field] == v.String() }

// Store notes that the runtime's copy has a text for a field.
func (c *Copy) Store(f lifecycle.Field, text string) {
	if c.Stored == nil {
		c.Stored = FieldTexts{}
	}
	c.Stored[f] = text
}

// Invalidate notes that the runtime's copy may lack the value that was sent, so that the field
// is sent again.
func (c *Copy) Invalidate(f lifecycle.Field) { c.Store(f, unknownText) }

// NoteSent notes a value that goes to the runtime in an answer. A runtime that has not stored the container yet
// ignores the value, so it is sent again later.
func (c *Copy) NoteSent(v lifecycle.Value) {
	c.Store(v.Field, v.String())
	if c.CreatePending {
		c.maybeIgnored = true
		c.Store(v.Field, unknownText)
	}
}

// CreateAnswered notes that the creation of the container was answered.
func (c *Copy) CreateAnswered() {
	c.Stored, c.CreatePending, c.maybeIgnored = FieldTexts{}, true, false
}

// SetReported stores what the runtime reports about a container that it has stored.
func (c *Copy) SetReported(r *lifecycle.Resources) {
	c.Stored, c.CreatePending, c.maybeIgnored = FieldTextsOf(r), false, false
}

// CreateDone notes that the runtime has stored the container. It reports whether the runtime may have ignored a
// value that was sent before.
func (c *Copy) CreateDone() (missed bool) {
	missed = c.maybeIgnored
	c.CreatePending, c.maybeIgnored = false, false
	return missed
}

// UpdateDone notes that the runtime has written the pending update, and returns that update.
func (c *Copy) UpdateDone() FieldTexts {
	wrote := c.Pending
	c.Pending = nil
	for f, text := range wrote {
		c.Store(f, text)
	}
	return wrote
}

// InheritFrom copies what is known about the container under its former id.
func (c *Copy) InheritFrom(from *Copy) {
	if from.Stored != nil {
		c.Stored = from.Stored
	}
	c.Recorded = c.Recorded || from.Recorded
	if from.CreatePending {
		c.CreatePending, c.maybeIgnored = true, from.maybeIgnored
	}
}

// KernelOnly reports whether a value must not be in the runtime's copy. If that copy has no list of CPUs for a
// container without a class, the agent limits the container's CPUs only in the kernel. No update of the runtime undoes
// that. The runtime's copy keeps the original request, and the agent finds it there after a restart.
func (c *Copy) KernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return !c.RuntimeOnly && v.Field == lifecycle.CPUSetCPUs && !lifecycle.IsExternal(v.Why.Hook) && ctr.Assignment.Pool == placement.Unclassified &&
		ctr.Pristine.CPU.CPUs == "" && c.Stored[lifecycle.CPUSetCPUs] == ""
}

// KeptFromCopy reports whether a value is written only to the kernel until the next update of the container. This
// also applies to a value that was computed from the runtime's copy, if the container has no record. Then only the
// copy shows what was requested, and a restarted agent needs that.
func (c *Copy) KeptFromCopy(ctr *engine.Container, v lifecycle.Value) bool {
	return c.KernelOnly(ctr, v) || v.Scaled && !c.Recorded
}

// Differs reports whether the runtime's copy should have a value and lacks it.
func (c *Copy) Differs(ctr *engine.Container, v lifecycle.Value) bool {
	return route.IsCopied(v.Field) && !c.Has(v) && !c.KeptFromCopy(ctr, v)
}

// MissingValues returns the values that the container's copy lacks and that can be sent in this phase. contest
// returns why the field is left to other plugins, or "".
func (c *Copy) MissingValues(ctr *engine.Container, values []lifecycle.Value, p route.Phase, can *route.Capabilities, contest func(lifecycle.Field) string) []lifecycle.Value {
	if c.CreatePending {
		c.maybeIgnored = true // the values are sent when the runtime has stored the container
		return nil
	}
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool {
		k := route.Inputs{ContestedBy: contest(v.Field), Stored: c.Has(v), KeptFromCopy: c.KeptFromCopy(ctr, v)}
		return route.ChooseSink(p, can, v, k).Sink != route.ToRuntime
	})
}
