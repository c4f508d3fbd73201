package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy is what the agent knows about the values that the runtime stores for one container. The stored values are called
// the runtime's copy: the runtime writes them to the kernel again at later updates. Copy also has what the agent knows
// about updates of the runtime's copy.
type Copy struct {
	ID     string     // the container's id
	Stored FieldTexts // the values in the runtime's copy
	// Pending has the values of an update that is in progress: those of the kubelet's request and of the agent's
	// answer. The runtime writes these values some time after the answer. Pending is nil if no update is in progress.
	Pending FieldTexts
	// RuntimeOnly means that the kernel lets only the runtime write the container's cgroup (cgroup.RuntimeOnly). The
	// agent then sends every value that the runtime accepts to the runtime.
	RuntimeOnly bool
	Recorded    bool // the runtime stores a record (an annotation) that has the container's requested resources
	// CreatePending means that the agent has answered the container's creation, and possibly the runtime has not stored
	// the container yet.
	CreatePending bool
	maybeIgnored  bool // the agent sent a value before the runtime stored the container, so the runtime possibly ignored the value

	queued      bool          // the copy is in the queue
	piggybacked bool          // values of the copy were sent in an answer; runtimes do not report whether they accepted such values
	tries       int           // how often in a row the runtime did not accept the copy's values
	pause       time.Duration // the last pause that Postpone returned; 0 if the runtime accepted the last update
}

// unknownText is stored for a field if the runtime possibly ignored the last value that the agent sent. No value has
// this text. So the agent always sends the next value of the field.
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

// Invalidate notes that the runtime's copy possibly lacks the value that was sent for a field, so that the agent sends
// the value again.
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

// CreateDone notes that the runtime has stored the container. missed means that the runtime possibly ignored a value
// that was sent before.
func (c *Copy) CreateDone() (missed bool) {
	missed = c.maybeIgnored
	c.CreatePending, c.maybeIgnored = false, false
	return missed
}

// UpdateDone notes that the runtime has written the pending update, and returns the values of this update.
func (c *Copy) UpdateDone() FieldTexts {
	wrote := c.Pending
	c.Pending = nil
	for f, text := range wrote {
		c.Store(f, text)
	}
	return wrote
}

// InheritFrom handles a container that got a new id. It copies what the agent knows from the Copy with the container's
// old id to c.
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
// the case for the CPUs of a container in the pool Unclassified, if neither the request nor the runtime's copy has a
// list of CPUs. An update by the runtime then does not overwrite the CPUs in the kernel. The runtime's copy keeps the
// original request, which a restarted agent needs. KernelOnly returns false if RuntimeOnly is set, or if a hook server
// or resource plugin chose the CPUs.
func (c *Copy) KernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return !c.RuntimeOnly && v.Field == lifecycle.CPUSetCPUs && !lifecycle.IsExternal(v.Why.Hook) && ctr.Assignment.Pool == placement.Unclassified &&
		ctr.Pristine.CPU.CPUs == "" && c.Stored[lifecycle.CPUSetCPUs] == ""
}

// KeptFromCopy reports whether the agent writes a value only to the kernel until the next update of the container. This
// is so in two cases. In the first, KernelOnly returns true for the value. In the second, a hook has computed the value
// by scaling the requested value, and the runtime stores no record of the container. Then the agent must not overwrite
// the requested value in the runtime's copy, because a restarted agent needs it.
func (c *Copy) KeptFromCopy(ctr *engine.Container, v lifecycle.Value) bool {
	return c.KernelOnly(ctr, v) || v.Scaled && !c.Recorded
}

// Lacks reports whether the runtime's copy lacks a value that it should have.
func (c *Copy) Lacks(ctr *engine.Container, v lifecycle.Value) bool {
	return route.IsCopied(v.Field) && !c.Has(v) && !c.KeptFromCopy(ctr, v)
}

// MissingValues returns those of the given values that the runtime's copy lacks and that the agent can send to the
// runtime now. The phase p is the step of handling an event in which the agent would send the values. The function
// contestedBy returns the reason why the agent leaves a field to other NRI plugins; "" if the agent sets the field.
func (c *Copy) MissingValues(ctr *engine.Container, values []lifecycle.Value, p route.Phase, can *route.Capabilities, contestedBy func(lifecycle.Field) string) []lifecycle.Value {
	if c.CreatePending {
		c.maybeIgnored = true // the values are sent when the runtime has stored the container
		return nil
	}
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool {
		k := route.Inputs{WhyLeftToPlugins: contestedBy(v.Field), Stored: c.Has(v), KeptFromCopy: c.KeptFromCopy(ctr, v)}
		return route.ChooseSink(p, can, v, k).Sink != route.ToRuntime
	})
}
