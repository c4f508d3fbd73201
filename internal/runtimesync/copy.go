package runtimesync

import (
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Copy is the runtime's stored copy of one container, and how far the runtime is.
type Copy struct {
	ID     string // of the container
	Stored Texts  // what the runtime has
	// Pending is what an update under way requested and was answered with, else nil:
	// the runtime writes it some time after the answer.
	Pending Texts
	// RuntimeOnly: the kernel lets the runtime write the container's cgroup, and not
	// the agent (cgroup.RuntimeOnly). So the runtime gets every value it can carry.
	RuntimeOnly bool
	Recorded    bool // its pristine resources are known from a record
	// CreatePending: its creation was answered, and the runtime may not know it yet.
	CreatePending bool
	maybeIgnored  bool // something was sent to it meanwhile

	waits       bool          // it is in the queue
	piggybacked bool          // and its values went with an answer; no runtime says whether it took them
	tries       int           // that failed in a row
	pause       time.Duration // before it is tried again; 0 where the runtime took it
}

// unsure is what a copy has where the runtime was sent a value and may have passed
// over it: it is no value's text, so the next one is sent whatever it is.
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

// Invalidate notes that the runtime's copy may not have what it was sent: the field's
// value is sent again.
func (c *Copy) Invalidate(f lifecycle.Field) { c.Store(f, unknownText) }

// Send notes a value that goes to the runtime with an answer. A runtime that does not
// know the container yet passes over it: its copy is brought in line once it does.
func (c *Copy) Send(v lifecycle.Value) {
	c.Store(v.Field, v.String())
	if c.CreatePending {
		c.maybeIgnored = true
		c.Store(v.Field, unknownText)
	}
}

// Create notes that the container's creation is answered.
func (c *Copy) Create() { c.Stored, c.CreatePending, c.maybeIgnored = Texts{}, true, false }

// Report takes over what the runtime reports of a container that it knows.
func (c *Copy) Report(r *lifecycle.Resources) {
	c.Stored, c.CreatePending, c.maybeIgnored = Of(r), false, false
}

// CreateDone notes that the runtime knows the container. It reports whether something
// sent to it until now may have been passed over.
func (c *Copy) CreateDone() (missed bool) {
	missed = c.maybeIgnored
	c.CreatePending, c.maybeIgnored = false, false
	return missed
}

// UpdateDone notes that the runtime has written the update that was under way, and
// returns what that was.
func (c *Copy) UpdateDone() Texts {
	wrote := c.Pending
	c.Pending = nil
	for f, text := range wrote {
		c.Store(f, text)
	}
	return wrote
}

// Rename takes over what is known of the container under its former id.
func (c *Copy) Rename(from *Copy) {
	if from.Stored != nil {
		c.Stored = from.Stored
	}
	c.Recorded = c.Recorded || from.Recorded
	if from.CreatePending {
		c.CreatePending, c.maybeIgnored = true, from.maybeIgnored
	}
}

// KernelOnly reports whether a value is kept from the runtime's copy: a
// container without CPUs of its own in that copy is narrowed in the kernel
// alone, where no update of the runtime undoes it. So the runtime's copy stays
// what was asked for, and a restart finds it so.
func (c *Copy) KernelOnly(ctr *engine.Container, v lifecycle.Value) bool {
	return !c.RuntimeOnly && v.Field == lifecycle.CPUSetCPUs && v.Why.Hook != lifecycle.HookServerName && ctr.Assignment.Pool == placement.Unclassified &&
		ctr.Pristine.CPU.CPUs == "" && c.Stored[lifecycle.CPUSetCPUs] == ""
}

// StaysOut reports whether a value is written to the kernel and kept from the
// runtime's copy for as long as nobody updates the container: it was computed
// from that copy, and without a record the copy alone tells a later start what
// was asked for.
func (c *Copy) KeptFromCopy(ctr *engine.Container, v lifecycle.Value) bool {
	return c.KernelOnly(ctr, v) || v.Scaled && !c.Recorded
}

// Differs reports whether the runtime's copy is to have a value and lacks it.
func (c *Copy) Differs(ctr *engine.Container, v lifecycle.Value) bool {
	return route.Copied(v.Field) && !c.Has(v) && !c.KeptFromCopy(ctr, v)
}

// Lacks returns those of a container's values that its copy lacks and that can be sent
// in this phase; contest says why a field is left to others.
func (c *Copy) Lacks(ctr *engine.Container, values []lifecycle.Value, p route.Phase, can *route.Capabilities, contest func(lifecycle.Field) string) []lifecycle.Value {
	if c.CreatePending {
		c.maybeIgnored = true // sent once the runtime knows it
		return nil
	}
	return slices.DeleteFunc(values, func(v lifecycle.Value) bool {
		k := route.Known{Contest: contest(v.Field), Stored: c.Has(v), Kept: c.KeptFromCopy(ctr, v)}
		return route.Of(p, can, v, k).To != route.Runtime
	})
}
