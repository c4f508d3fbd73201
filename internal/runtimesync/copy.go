package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy is what the agent knows about the runtime's stored copy of one container, and about updates of this copy.
type Copy struct {
	ID     string     // the container's id
	Stored FieldTexts // what the runtime has stored
	// Pending has the values of an update that is in progress: those of the kubelet's request and of the agent's answer.
	// It is nil if there is no update. The runtime writes these values some time after the answer.
	Pending FieldTexts
	// RuntimeOnly means that the kernel lets only the runtime write the container's cgroup (cgroup.RuntimeOnly). The agent
	// then sends every value that the runtime accepts to the runtime.
	RuntimeOnly bool
	Recorded    bool // a record in the runtime has the container's pristine resources
	// CreatePending means that the agent has answered the container's creation, and the runtime may not have stored the
	// container yet.
	CreatePending bool
	maybeIgnored  bool // the runtime may have ignored a value that was sent before it stored the container

	queued      bool          // the copy is in the queue
	piggybacked bool          // values of the copy were sent in an answer; no runtime reports whether it accepted them
	tries       int           // failures in a row
	pause       time.Duration // the last pause that Postpone returned; 0 if the runtime accepted the last update
}

// unknownText is stored for a value that the runtime may have ignored. It equals the text of no value, so the agent
// sends the next value of the field in any case.
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

// Invalidate notes that the runtime's copy may lack the value that was sent for a field, so that the agent sends the
// field again.
func (c *Copy) Invalidate(f lifecycle.Field) { c.Store(f, unknownText) }

// NoteSent notes a value that the agent sends to the runtime in an answer. A runtime that has not stored the container
// yet ignores the value, so the agent sends it again later.
func (c *Copy) NoteSent(v lifecycle.Value) {
	c.Store(v.Field, v.String())
	if c.CreatePending {
		c.maybeIgnored = true
		c.Store(v.Field, unknownText)
	}
}

// CreateAnswered notes that the agent has answered the creation of the container.
func (c *Copy) CreateAnswered() {
	c.Stored, c.CreatePending, c.maybeIgnored = FieldTexts{}, true, false
}

// SetReported stores what the runtime reports about a container that it has stored.
func (c *Copy) SetReported(r *lifecycle.Resources) {
	c.Stored, c.CreatePending, c.maybeIgnored = FieldTextsOf(r), false, false
}

// CreateDone notes that the runtime has stored the container. missed means that the runtime may have ignored a value
// that was sent before.
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

// InheritFrom copies from another Copy what is known about the same container under its former id.
func (c *Copy) InheritFrom(from *Copy) {
	if from.Stored != nil {
		c.Stored = from.Stored
	}
	c.Recorded = c.Recorded || from.Recorded
	if from.CreatePending {
		c.CreatePending, c.maybeIgnored = true, from.maybeIgnored
	}
}

// KernelOnly reports whether the agent must write a value only to the kernel, and not to the runtime's copy. This is
// the case for the CPUs of a container without a class, if the runtime's copy has no list of CPUs for the container. An
// update by the runtime then does not overwrite the CPUs. The runtime's copy keeps the original request, where the
// agent finds it after a restart.
func (c *Copy) KernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return !c.RuntimeOnly && v.Field == lifecycle.CPUSetCPUs && !lifecycle.IsExternal(v.Why.Hook) && ctr.Assignment.Pool == placement.Unclassified &&
		ctr.Pristine.CPU.CPUs == "" && c.Stored[lifecycle.CPUSetCPUs] == ""
}

// KeptFromCopy reports whether the agent writes a value only to the kernel until the next update of the container. This
// is the case for the values of KernelOnly. It is also the case for a scaled value if the container has no record: then
// only the runtime's copy shows the requested value, which a restarted agent needs.
func (c *Copy) KeptFromCopy(ctr *engine.Container, v lifecycle.Value) bool {
	return c.KernelOnly(ctr, v) || v.Scaled && !c.Recorded
}

// Differs reports whether the runtime's copy should have a value, but lacks it.
func (c *Copy) Differs(ctr *engine.Container, v lifecycle.Value) bool {
	return route.IsCopied(v.Field) && !c.Has(v) && !c.KeptFromCopy(ctr, v)
}

// MissingValues returns those of the values that the container's copy lacks and that the agent can send to the runtime
// in this phase. contest returns why the agent leaves a field to other plugins, or "".
func (c *Copy) MissingValues(ctr *engine.Container, values []lifecycle.Value, p route.Phase, can *route.Capabilities, contest func(lifecycle.Field) string) []lifecycle.Value {
	if c.CreatePending {
		c.maybeIgnored = true // the values are sent when the runtime has stored the container
		return nil
	}
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool {
		k := route.Inputs{ContestedBy: contest(v.Field), Stored: c.Has(v), KeptFromCopy: c.KeptFromCopy(ctr, v)}
		return route.Choose(p, can, v, k).Sink != route.Runtime
	})
}
