package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy is the runtime's stored copy of one container, and what is known about the runtime's
// progress.
type Copy struct {
	ID     string // the container's id
	Stored Texts  // what the runtime has
	// Pending is what an update in progress requested and was answered with, otherwise nil. The
	// runtime writes it some time after the answer.
	Pending Texts
	// RuntimeOnly: the kernel lets the runtime write the container's cgroup, and not
	// the agent (cgroup.RuntimeOnly). So the runtime gets every value it can carry.
	RuntimeOnly bool
	Recorded    bool // its pristine resources are known from a record
	// CreatePending: its creation was answered, and the runtime may not know it yet.
	CreatePending bool
	maybeIgnored  bool // the runtime may have ignored a value that was sent meanwhile

	waits       bool          // it is in the queue
	piggybacked bool          // and its values went with an answer; no runtime reports whether it accepted them
	tries       int           // failures in a row
	pause       time.Duration // before the next try; 0 if the runtime accepted the last update
}

// unknownText is the text of a copy if the runtime may have ignored a value that was sent. It
// equals no value, so the next value is sent in any case.
const unknownText = "?"

// Has reports whether the runtime's copy has a value.
func (c *Copy) Has(v lifecycle.Value) bool { return c.Stored[v.Field] == v.String() }

// Store notes that the runtime's copy has a text for a field.
func (c *Copy) Store(f lifecycle.Field, text string) {
	if c.Stored == nil {
		c.Stored = Texts{}
	}
	c.Stored[f] = text
}

// Invalidate notes that the runtime's copy may lack the value that was sent, so that the field
// is sent again.
func (c *Copy) Invalidate(f lifecycle.Field) { c.Store(f, unknownText) }

// Send notes a value that goes to the runtime with an answer. A runtime that does not know the
// container yet ignores it, so it is sent again later.
func (c *Copy) Send(v lifecycle.Value) {
	c.Store(v.Field, v.String())
	if c.CreatePending {
		c.maybeIgnored = true
		c.Store(v.Field, unknownText)
	}
}

// Create notes that the container's creation is answered.
func (c *Copy) Create() { c.Stored, c.CreatePending, c.maybeIgnored = Texts{}, true, false }

// Report stores what the runtime reports about a container that it knows.
func (c *Copy) Report(r *lifecycle.Resources) {
	c.Stored, c.CreatePending, c.maybeIgnored = Of(r), false, false
}

// CreateDone notes that the runtime knows the container. It reports whether the runtime may
// have ignored something that was sent before.
func (c *Copy) CreateDone() (missed bool) {
	missed = c.maybeIgnored
	c.CreatePending, c.maybeIgnored = false, false
	return missed
}

// UpdateDone notes that the runtime has written the pending update, and returns that update.
func (c *Copy) UpdateDone() Texts {
	wrote := c.Pending
	c.Pending = nil
	for f, text := range wrote {
		c.Store(f, text)
	}
	return wrote
}

// Rename copies what is known about the container under its former id.
func (c *Copy) Rename(from *Copy) {
	if from.Stored != nil {
		c.Stored = from.Stored
	}
	c.Recorded = c.Recorded || from.Recorded
	if from.CreatePending {
		c.CreatePending, c.maybeIgnored = true, from.maybeIgnored
	}
}

// KernelOnly reports whether a value must not be in the runtime's copy. If a container has no
// list of CPUs in that copy, it is narrowed only in the kernel, where no update of the runtime
// undoes it. So the runtime's copy keeps the request, and a restart finds it there.
func (c *Copy) KernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return !c.RuntimeOnly && v.Field == lifecycle.CPUSetCPUs && !lifecycle.IsExternal(v.Why.Hook) && ctr.Assignment.Pool == placement.Unclassified &&
		ctr.Pristine.CPU.CPUs == "" && c.Stored[lifecycle.CPUSetCPUs] == ""
}

// KeptFromCopy reports whether a value is written only to the kernel until the next update of
// the container. It was computed from the runtime's copy, and without a record only the copy
// shows a later start what was requested.
func (c *Copy) KeptFromCopy(ctr *engine.Container, v lifecycle.Value) bool {
	return c.KernelOnly(ctr, v) || v.Scaled && !c.Recorded
}

// Differs reports whether the runtime's copy should have a value and lacks it.
func (c *Copy) Differs(ctr *engine.Container, v lifecycle.Value) bool {
	return route.Copied(v.Field) && !c.Has(v) && !c.KeptFromCopy(ctr, v)
}

// Lacks returns those of a container's values that its copy lacks and that can be sent in this
// phase. contest returns why other plugins set a field.
func (c *Copy) Lacks(ctr *engine.Container, values []lifecycle.Value, p route.Phase, can *route.Capabilities, contest func(lifecycle.Field) string) []lifecycle.Value {
	if c.CreatePending {
		c.maybeIgnored = true // sent when the runtime knows it
		return nil
	}
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool {
		k := route.Inputs{ContestedBy: contest(v.Field), Stored: c.Has(v), KeptFromCopy: c.KeptFromCopy(ctr, v)}
		return route.Of(p, can, v, k).To != route.Runtime
	})
}
