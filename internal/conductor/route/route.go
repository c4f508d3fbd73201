// Package route decides where a value goes: into the answer to an event, to the kernel, into
// the runtime's stored copy, or nowhere, with the reason. Its functions are pure; the conductor
// applies their results.
package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Phase is the moment in a container's life at which its values are routed.
type Phase uint8

// The phases.
const (
	Creating   Phase = iota // the agent answers the container's creation
	Created                 // the runtime has created it and assigned its id
	Starting                // the start waits until the runtime has stored the values of the answer
	Updating                // the agent answers an update by the kubelet
	Running                 // the container exists, and the event is about something else
	LosingCPUs              // the container has not started, and others get CPUs of its pool
	Copying                 // an update by the agent refreshes the runtime's stored copy
	Piggyback               // as Copying, but with the answer to another container's event
)

// calls are the runtime calls that would carry a value in each phase.
var calls = [...]runtimes.Call{
	Creating: runtimes.CreateCall, Updating: runtimes.KubeletUpdate, Running: runtimes.CreateCall,
	Created: runtimes.AgentUpdate, Starting: runtimes.AgentUpdate, LosingCPUs: runtimes.AgentUpdate, Copying: runtimes.AgentUpdate, Piggyback: runtimes.AgentUpdate,
}

// Sink is where a value goes.
type Sink uint8

// The sinks.
const (
	NoSink      Sink = iota // the value is applied already, or nothing can carry it in this phase
	Answer                  // the answer to the container's own event
	Runtime                 // the runtime's stored copy
	Kernel                  // the kernel only, now or when the container's cgroup exists
	CreatedWith             // the container was created with the value earlier
	Unapplied               // nothing can carry the value
)

// Inputs has the inputs of a route besides the attachment's capabilities.
type Inputs struct {
	NoCgroup     error  // why the container's cgroup has no name
	ContestedBy  string // why other plugins set the value's field
	InForce      bool   // the value was applied before
	CreatedWith  bool   // the container was created with the value
	Stored       bool   // the runtime's stored copy has the value
	KeptFromCopy bool   // the runtime's stored copy must not have the value
	// SetsMemoryLimit means a memory limit that is not in force. The kernel refuses it if more memory is in use.
	SetsMemoryLimit bool
	NoAttachment    bool // the event has no attachment
}

// Route is where a value goes, and why.
type Route struct {
	Sink    Sink
	Missing api.MissingReason // for Unapplied: the kind of reason why it is not in force
	// Reason is the reason for users: for Unapplied, and for Kernel if the runtime could carry the
	// value and does not get it.
	Reason string
}

// condition is a condition of a row.
type condition uint16

const (
	carried      condition = 1 << iota // the call can hold the value, and the runtime accepts it
	inKernel                           // the keeper can write the value
	copied                             // the agent keeps the runtime's stored copy of the value up to date
	cannotRemove                       // the value removes an entry, and the attachment cannot remove entries
	noCgroup                           // the container's cgroup has no name
	contested                          // other plugins set the value's field
	inForce                            // the value was applied before
	createdWith                        // the container was created with the value
	stale                              // the runtime's stored copy should have the value, and lacks it
	kernelOnly                         // the runtime must not get the value
	noAttachment                       // the event has no attachment
	onProcess                          // no creation can hold the value, and the keeper can set it on processes
)

// row gives the sink, in one phase, of values that meet all conditions in requires and no condition in unless.
type row struct {
	phase            Phase
	requires, unless condition
	sink             Sink
	missing          api.MissingReason
}

// table is searched from the top; the first matching row counts. A value without a row goes
// nowhere.
var table = [...]row{
	{Creating, cannotRemove, 0, Unapplied, api.NotCarried},
	{Creating, carried, contested, Answer, ""},
	{Creating, contested, inKernel, Unapplied, api.Ceded},
	{Creating, onProcess | noCgroup, 0, Unapplied, api.BadCgroup},
	{Creating, onProcess, 0, Kernel, ""},
	{Creating, 0, inKernel, Unapplied, api.NotCarried},
	{Creating, noCgroup, 0, Unapplied, api.BadCgroup},
	{Creating, 0, 0, Kernel, ""},

	{Created, inForce, 0, NoSink, ""},
	{Created, inKernel | noCgroup, 0, Unapplied, api.BadCgroup},
	{Created, inKernel | carried, contested, Runtime, ""},
	{Created, inKernel, 0, Kernel, ""},
	{Created, onProcess, noCgroup | contested, Kernel, ""},

	{Starting, copied | carried | stale, 0, Runtime, ""},

	{Updating, inKernel | carried, kernelOnly, Answer, ""},
	{Updating, inKernel, 0, Kernel, ""},

	{Running, inKernel | noCgroup, 0, Unapplied, api.BadCgroup},
	{Running, inKernel, 0, Kernel, ""},
	{Running, inForce, 0, NoSink, ""},
	{Running, createdWith, 0, CreatedWith, ""},
	{Running, onProcess, contested | noCgroup, Kernel, ""},
	{Running, 0, carried | noAttachment, Unapplied, api.NotCarried},
	{Running, 0, 0, Unapplied, api.CreateOnly},

	{LosingCPUs, carried, 0, Runtime, ""},
	{Copying, inKernel | carried | stale, 0, Runtime, ""},
	{Piggyback, inKernel | carried | stale, contested, Runtime, ""},
}

// Choose returns where a value goes.
func Choose(p Phase, can *Capabilities, v lifecycle.Value, k Inputs) Route {
	refusal := can.Refuses(calls[p], v)
	if refusal == "" && p == Updating && k.SetsMemoryLimit {
		refusal = "not sent with the kubelet's update, because the update fails if the container uses more memory than the limit"
	}
	has := conditions(p, can, v, k, refusal == "")
	for i := range table {
		if r := &table[i]; r.phase == p && has&r.requires == r.requires && has&r.unless == 0 {
			return Route{Sink: r.sink, Missing: r.missing, Reason: reasonFor(p, r, can, v, k, refusal)}
		}
	}
	return Route{}
}

func conditions(p Phase, can *Capabilities, v lifecycle.Value, k Inputs, accepted bool) (has condition) {
	fields := can.Update
	switch p {
	case Creating, Running:
		fields = can.Create
	case Copying, Piggyback:
		fields = can.Copy
	}
	if slices.Contains(can.UnchangedCalls, calls[p]) {
		fields = 0
	}
	for _, c := range [...]struct {
		holds bool
		cond  condition
	}{
		{accepted && fields.Has(v.Field), carried},
		{InKernel(v.Field), inKernel},
		{OnProcess(v.Field) && !inCreation(can, v), onProcess},
		{IsCopied(v.Field), copied},
		{v.Remove && fields.Has(v.Field) && !can.RemovesEnv, cannotRemove},
		{k.NoCgroup != nil, noCgroup},
		{k.ContestedBy != "", contested},
		{k.InForce, inForce},
		{k.CreatedWith, createdWith},
		{!k.Stored && !k.KeptFromCopy, stale},
		{k.KeptFromCopy, kernelOnly},
		{k.NoAttachment, noAttachment},
	} {
		if c.holds {
			has |= c.cond
		}
	}
	return has
}

// inCreation reports whether the creation of a container can hold a value.
func inCreation(can *Capabilities, v lifecycle.Value) bool {
	return can.Create.Has(v.Field) && !slices.Contains(can.UnchangedCalls, runtimes.CreateCall) && can.Refuses(runtimes.CreateCall, v) == ""
}

// reasonFor returns the reason of a route, as text for users.
func reasonFor(p Phase, r *row, can *Capabilities, v lifecycle.Value, k Inputs, refusal string) string {
	switch r.missing {
	case api.Ceded:
		return k.ContestedBy
	case api.BadCgroup:
		return k.NoCgroup.Error()
	case api.CreateOnly:
		return "only the creation of a container can carry it; it applies when the container is created again"
	case api.NotCarried:
		if r.requires&cannotRemove != 0 {
			return can.Name + " cannot remove a value that the kubelet requested from the runtime"
		}
		return notCarried(can, v, refusal)
	}
	switch {
	case r.sink != Kernel, p == Updating && k.KeptFromCopy, p == Running && k.Stored:
		return ""
	case p == Running:
		return can.Refuses(runtimes.AgentUpdate, v)
	}
	return refusal
}

// notCarried is the reason for a field that only a creation can set.
func notCarried(can *Capabilities, v lifecycle.Value, refusal string) string {
	switch {
	case refusal != "" && can.Create.Has(v.Field):
		return refusal
	case slices.Contains(can.UnchangedCalls, runtimes.CreateCall):
		return "the stage PreCreateContainer is disabled for " + can.Name
	}
	why := fmt.Sprintf("%s cannot carry %s when a container is created", can.Name, v.Field)
	if can.About != "" {
		why += ": the runtime is " + can.About
	}
	return why
}

// AtStart returns the note for a value that the keeper writes when its container starts.
func AtStart(contest string) string {
	return strings.TrimPrefix(contest+"; the agent writes the value when the container starts", "; ")
}

// resources are the fields that the runtime stores and that cgroup files show.
var resources = [...]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit,
}

// CopiedFields lists the fields whose value in the runtime's stored copy is kept up to date.
func CopiedFields() []lifecycle.Field { return resources[:] }

// IsCopied reports whether a field's value in the runtime's stored copy is kept up to
// date.
func IsCopied(f lifecycle.Field) bool { return slices.Contains(resources[:], f) }

// InKernel reports whether the keeper writes a field, into a cgroup file or next to it.
func InKernel(f lifecycle.Field) bool {
	switch f {
	case lifecycle.Unified, lifecycle.Hugepages, lifecycle.IOLimit,
		lifecycle.RDTSchemata, lifecycle.RDTGroup, lifecycle.RDTMonitor, lifecycle.CoreSched:
		return true
	}
	return IsCopied(f)
}

// OnProcess reports whether the keeper can set a field on the processes of a container that exists. It does so, once,
// if the creation of the container cannot hold the field.
func OnProcess(f lifecycle.Field) bool {
	switch f {
	case lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched:
		return true
	}
	return false
}
