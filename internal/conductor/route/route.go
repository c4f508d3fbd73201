// Package route decides where a decided value goes: into the answer to an event, to the kernel, into the runtime's
// stored copy, or nowhere, with the reason. Its functions do no I/O and change no state; the conductor applies their
// results.
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
	PhaseCreating   Phase = iota // the agent answers the container's creation
	PhaseCreated                 // the runtime has created the container and assigned its id
	PhaseStarting                // the start waits until the runtime has stored the values of the answer
	PhaseUpdating                // the agent answers an update by the kubelet
	PhaseRunning                 // the container exists, and the event is about something else
	PhaseLosingCPUs              // the container has not started, and others get CPUs of its pool
	PhaseCopying                 // an update by the agent refreshes the runtime's stored copy
	PhasePiggyback               // as PhaseCopying, but with the answer to another container's event
)

// callOfPhase is the runtime call that would carry a value in each phase.
var callOfPhase = [...]runtimes.Call{
	PhaseCreating: runtimes.CreateCall, PhaseUpdating: runtimes.KubeletUpdate, PhaseRunning: runtimes.CreateCall,
	PhaseCreated: runtimes.AgentUpdate, PhaseStarting: runtimes.AgentUpdate, PhaseLosingCPUs: runtimes.AgentUpdate, PhaseCopying: runtimes.AgentUpdate, PhasePiggyback: runtimes.AgentUpdate,
}

// Sink is where a value goes.
type Sink uint8

// The sinks.
const (
	ToNothing   Sink = iota // the value is applied already, or nothing can carry it in this phase
	ToAnswer                // the answer to the container's own event
	ToRuntime               // the runtime's stored copy
	ToKernel                // the kernel only, now or when the container's cgroup exists
	CreatedWith             // the container was created with the value earlier
	Unapplied               // nothing can carry the value
)

// Inputs are the facts on which a route depends, besides the phase, the value and the attachment's capabilities.
type Inputs struct {
	NoCgroup     error  // why the container's cgroup has no name
	ContestedBy  string // why the agent leaves the value's field to other plugins; "" if it does not
	InForce      bool   // the value was applied before
	CreatedWith  bool   // the container was created with the value
	Stored       bool   // the runtime's stored copy has the value
	KeptFromCopy bool   // the runtime's stored copy must not have the value
	// SetsMemoryLimit means that the value is a memory limit that is not in force yet. The kernel refuses a limit
	// below the memory in use.
	SetsMemoryLimit bool
	NoAttachment    bool // the event has no attachment
}

// Route is where a value goes, and why.
type Route struct {
	Sink    Sink
	Missing api.MissingReason // for Unapplied: the kind of reason why the value is not in force
	// Reason is a text for users. Unapplied has one, and ToKernel if the runtime could carry the value and
	// does not get it.
	Reason string
}

// condition is a set of facts about a value, on which the rows of routeTable depend.
type condition uint16

const (
	callCarries      condition = 1 << iota // the call can hold the value, and the runtime accepts it
	keeperWrites                           // the keeper can write the value
	runtimeStores                          // the agent keeps the runtime's stored copy of the value up to date
	cannotRemove                           // the value removes an entry, and the attachment cannot remove entries
	noCgroupName                           // the container's cgroup has no name
	otherPluginSets                        // the agent leaves the value's field to other plugins
	appliedBefore                          // the value was applied before
	createdWithValue                       // the container was created with the value
	copyLacksValue                         // the runtime's stored copy should have the value, and lacks it
	keptFromRuntime                        // the runtime must not get the value
	noAttachment                           // the event has no attachment
	setOnProcesses                         // no creation can hold the value, and the keeper can set it on processes
)

// routeRow gives the sink, in one phase, of values that meet all conditions in requires and no condition in unless.
type routeRow struct {
	phase            Phase
	requires, unless condition
	sink             Sink
	missing          api.MissingReason
}

// routeTable is searched from the top; the first matching row counts. A value without a matching row goes
// nowhere.
var routeTable = [...]routeRow{
	{PhaseCreating, cannotRemove, 0, Unapplied, api.NotCarried},
	{PhaseCreating, callCarries, otherPluginSets, ToAnswer, ""},
	{PhaseCreating, otherPluginSets, keeperWrites, Unapplied, api.Ceded},
	{PhaseCreating, setOnProcesses | noCgroupName, 0, Unapplied, api.BadCgroup},
	{PhaseCreating, setOnProcesses, 0, ToKernel, ""},
	{PhaseCreating, 0, keeperWrites, Unapplied, api.NotCarried},
	{PhaseCreating, noCgroupName, 0, Unapplied, api.BadCgroup},
	{PhaseCreating, 0, 0, ToKernel, ""},

	{PhaseCreated, appliedBefore, 0, ToNothing, ""},
	{PhaseCreated, keeperWrites | noCgroupName, 0, Unapplied, api.BadCgroup},
	{PhaseCreated, keeperWrites | callCarries, otherPluginSets, ToRuntime, ""},
	{PhaseCreated, keeperWrites, 0, ToKernel, ""},
	{PhaseCreated, setOnProcesses, noCgroupName | otherPluginSets, ToKernel, ""},

	{PhaseStarting, runtimeStores | callCarries | copyLacksValue, 0, ToRuntime, ""},

	{PhaseUpdating, keeperWrites | callCarries, keptFromRuntime, ToAnswer, ""},
	{PhaseUpdating, keeperWrites, 0, ToKernel, ""},

	{PhaseRunning, keeperWrites | noCgroupName, 0, Unapplied, api.BadCgroup},
	{PhaseRunning, keeperWrites, 0, ToKernel, ""},
	{PhaseRunning, appliedBefore, 0, ToNothing, ""},
	{PhaseRunning, createdWithValue, 0, CreatedWith, ""},
	{PhaseRunning, setOnProcesses, otherPluginSets | noCgroupName, ToKernel, ""},
	{PhaseRunning, 0, callCarries | noAttachment, Unapplied, api.NotCarried},
	{PhaseRunning, 0, 0, Unapplied, api.CreateOnly},

	{PhaseLosingCPUs, callCarries, 0, ToRuntime, ""},
	{PhaseCopying, keeperWrites | callCarries | copyLacksValue, 0, ToRuntime, ""},
	{PhasePiggyback, keeperWrites | callCarries | copyLacksValue, otherPluginSets, ToRuntime, ""},
}

// ChooseSink returns where a value goes in a phase, and why.
func ChooseSink(p Phase, can *Capabilities, v lifecycle.Value, k Inputs) Route {
	refusal := can.Refuses(callOfPhase[p], v)
	if refusal == "" && p == PhaseUpdating && k.SetsMemoryLimit {
		refusal = "not sent with the kubelet's update, because the update fails if the container uses more memory than the limit"
	}
	has := conditions(p, can, v, k, refusal == "")
	for i := range routeTable {
		if r := &routeTable[i]; r.phase == p && has&r.requires == r.requires && has&r.unless == 0 {
			return Route{Sink: r.sink, Missing: r.missing, Reason: reasonFor(p, r, can, v, k, refusal)}
		}
	}
	return Route{}
}

// conditions returns the conditions that a value meets in a phase. accepted means that the runtime accepts the value.
func conditions(p Phase, can *Capabilities, v lifecycle.Value, k Inputs, accepted bool) (has condition) {
	fields := can.Update
	switch p {
	case PhaseCreating, PhaseRunning:
		fields = can.Create
	case PhaseCopying, PhasePiggyback:
		fields = can.Copy
	}
	if slices.Contains(can.UnchangedCalls, callOfPhase[p]) {
		fields = 0
	}
	for _, c := range [...]struct {
		holds bool
		cond  condition
	}{
		{accepted && fields.Has(v.Field), callCarries},
		{InKernel(v.Field), keeperWrites},
		{OnProcess(v.Field) && !inCreation(can, v), setOnProcesses},
		{IsCopied(v.Field), runtimeStores},
		{v.Remove && fields.Has(v.Field) && !can.RemovesEnv, cannotRemove},
		{k.NoCgroup != nil, noCgroupName},
		{k.ContestedBy != "", otherPluginSets},
		{k.InForce, appliedBefore},
		{k.CreatedWith, createdWithValue},
		{!k.Stored && !k.KeptFromCopy, copyLacksValue},
		{k.KeptFromCopy, keptFromRuntime},
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

// reasonFor returns the reason of a row's route, as text for users. refusal is why the runtime does not accept the
// value; "" if it does.
func reasonFor(p Phase, r *routeRow, can *Capabilities, v lifecycle.Value, k Inputs, refusal string) string {
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
	case r.sink != ToKernel, p == PhaseUpdating && k.KeptFromCopy, p == PhaseRunning && k.Stored:
		return ""
	case p == PhaseRunning:
		return can.Refuses(runtimes.AgentUpdate, v)
	}
	return refusal
}

// notCarried returns the reason why a creation cannot carry a value, for a field that the keeper cannot write.
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

// AtStart returns the note for a value that the keeper writes when its container starts. contest is the reason why the
// agent leaves the field to other plugins at the creation; "" for none.
func AtStart(contest string) string {
	return strings.TrimPrefix(contest+"; the agent writes the value when the container starts", "; ")
}

// copiedFields are the fields of which the runtime stores a copy and which cgroup files show.
var copiedFields = [...]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit,
}

// CopiedFields lists the fields whose value in the runtime's stored copy is kept up to date.
func CopiedFields() []lifecycle.Field { return copiedFields[:] }

// IsCopied reports whether a field's value in the runtime's stored copy is kept up to
// date.
func IsCopied(f lifecycle.Field) bool { return slices.Contains(copiedFields[:], f) }

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
