// Package route decides where the agent sends a value that it has decided for a container: into the answer to an event,
// to the kernel, into the copy of the resources that the runtime stores, or nowhere, with the reason. Its functions do
// no I/O and change no state; package conductor applies their results.
package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Phase is the moment in a container's life at which the agent decides where it sends the container's values.
type Phase uint8

// The phases.
const (
	PhaseCreating   Phase = iota // the agent answers the container's creation
	PhaseCreated                 // the runtime has created the container and assigned its id
	PhaseStarting                // the container starts as soon as the runtime has stored the values of the agent's answer
	PhaseUpdating                // the agent answers an update by the kubelet
	PhaseRunning                 // the container exists, and the event neither creates nor updates it
	PhaseLosingCPUs              // the container has not started yet, and other containers get CPUs of this container's pool
	PhaseCopying                 // an update by the agent refreshes the runtime's stored copy
	PhasePiggyback               // the answer to another container's event refreshes the runtime's stored copy
)

// callOfPhase has, for each phase, the runtime call in which the agent can send a value. PhaseRunning has no such call.
// Its entry is the call that created the container. The agent reports whether that call could have set the value.
var callOfPhase = [...]runtimes.Call{
	PhaseCreating: runtimes.CreateCall, PhaseUpdating: runtimes.KubeletUpdate, PhaseRunning: runtimes.CreateCall,
	PhaseCreated: runtimes.AgentUpdate, PhaseStarting: runtimes.AgentUpdate, PhaseLosingCPUs: runtimes.AgentUpdate, PhaseCopying: runtimes.AgentUpdate, PhasePiggyback: runtimes.AgentUpdate,
}

// Sink is the place to which the agent sends a value.
type Sink uint8

// The sinks.
const (
	ToNothing   Sink = iota // no place: the value is applied already, or this phase has no way to apply it
	ToAnswer                // the answer to the container's own event
	ToRuntime               // the runtime's stored copy
	ToKernel                // only the kernel, now or when the container's cgroup exists
	CreatedWith             // no place: the container was created with the value earlier
	Unapplied               // no place: the agent reports the value as not applied, with a reason
)

// Inputs are the facts on which a route depends, besides the phase, the value and the attachment's capabilities.
type Inputs struct {
	NoCgroup         error  // why the agent does not know the path of the container's cgroup; nil if it knows the path
	WhyLeftToPlugins string // why the agent leaves the value's field to other plugins; "" if the agent sets the field
	InForce          bool   // the value was applied before
	CreatedWith      bool   // the container was created with the value
	Stored           bool   // the runtime's stored copy has the value
	KeptFromCopy     bool   // the runtime's stored copy must not have the value
	// SetsMemoryLimit means that the value is a memory limit that is not in force yet. Such a limit can be below the
	// memory in use, and then the update by the runtime fails.
	SetsMemoryLimit bool
	NoAttachment    bool // the event has no attachment
}

// Route is the place to which the agent sends a value, and the reason.
type Route struct {
	Sink    Sink
	Missing api.MissingReason // for Unapplied: the kind of reason why the value is not in force
	// Reason is a text for users. It says why a value is Unapplied, or why a value goes ToKernel only and not to the
	// runtime. It is "" for other routes.
	Reason string
}

// condition is a set of facts about a value and its container. The rows of routeTable depend on these facts.
type condition uint16

const (
	callCarries      condition = 1 << iota // the call of the phase can hold the value, and the runtime accepts the value
	keeperWrites                           // the keeper, which writes to the kernel, can write the value
	runtimeStores                          // the runtime stores a copy of the value, which the agent keeps up to date
	cannotRemove                           // the value removes an environment variable, and the attachment cannot remove variables
	noCgroupName                           // the agent does not know the path of the container's cgroup
	otherPluginSets                        // the agent leaves the value's field to other plugins
	appliedBefore                          // the value was applied before
	createdWithValue                       // the container was created with the value
	copyLacksValue                         // the runtime's stored copy should have the value, and lacks it
	keptFromRuntime                        // the runtime must not get the value
	noAttachment                           // the event has no attachment
	setOnProcesses                         // the container's creation cannot hold the value, and the keeper can set it on processes
)

// routeRow is a row of routeTable: it sets the sink of a value in one phase. The row applies to a value that meets all
// conditions in the field requires and no condition in the field unless.
type routeRow struct {
	phase            Phase
	requires, unless condition
	sink             Sink
	missing          api.MissingReason
}

// routeTable is searched from the top; the first matching row counts. If no row matches a value, its sink is ToNothing.
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

// ChooseSink returns the place to which the agent sends a value in a phase, and the reason.
func ChooseSink(p Phase, can *Capabilities, v lifecycle.Value, k Inputs) Route {
	refusal := can.WhyNotSent(callOfPhase[p], v)
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

// conditions returns the conditions that a value meets in a phase. The parameter accepted means that the runtime
// accepts the value.
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
		{CanWriteToKernel(v.Field), keeperWrites},
		{CanSetOnProcess(v.Field) && !creationCanHold(can, v), setOnProcesses},
		{IsCopied(v.Field), runtimeStores},
		{v.Remove && fields.Has(v.Field) && !can.RemovesEnv, cannotRemove},
		{k.NoCgroup != nil, noCgroupName},
		{k.WhyLeftToPlugins != "", otherPluginSets},
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

// creationCanHold reports whether the creation of a container can hold a value.
func creationCanHold(can *Capabilities, v lifecycle.Value) bool {
	return can.Create.Has(v.Field) && !slices.Contains(can.UnchangedCalls, runtimes.CreateCall) && can.WhyNotSent(runtimes.CreateCall, v) == ""
}

// reasonFor returns the reason for the route of a value to which the row r applies, as a text for users. The parameter
// refusal is the reason why the runtime does not accept the value; "" if the runtime accepts the value.
func reasonFor(p Phase, r *routeRow, can *Capabilities, v lifecycle.Value, k Inputs, refusal string) string {
	switch r.missing {
	case api.Ceded:
		return k.WhyLeftToPlugins
	case api.BadCgroup:
		return k.NoCgroup.Error()
	case api.CreateOnly:
		return "the value can only be set when a container is created; it applies when this container is created again"
	case api.NotCarried:
		if r.requires&cannotRemove != 0 {
			return can.Name + " cannot remove a value that the kubelet requested from the runtime"
		}
		return whyNotSetAtCreation(can, v, refusal)
	}
	switch {
	case r.sink != ToKernel, p == PhaseUpdating && k.KeptFromCopy, p == PhaseRunning && k.Stored:
		return ""
	case p == PhaseRunning:
		return can.WhyNotSent(runtimes.AgentUpdate, v)
	}
	return refusal
}

// whyNotSetAtCreation returns the reason why the agent cannot set a value when a container is created. The caller calls
// whyNotSetAtCreation only if the agent also cannot write the value to the kernel.
func whyNotSetAtCreation(can *Capabilities, v lifecycle.Value, refusal string) string {
	switch {
	case refusal != "" && can.Create.Has(v.Field):
		return refusal
	case slices.Contains(can.UnchangedCalls, runtimes.CreateCall):
		return "the configuration disables PreCreateContainer (disabledStages) for " + can.Name
	}
	why := fmt.Sprintf("%s cannot set %s when a container is created", can.Name, v.Field)
	if can.RuntimeName != "" {
		why += ": the runtime is " + can.RuntimeName
	}
	return why
}

// NoteForStart returns the note for users about a value that the agent writes to the kernel when the container starts.
// whyNotAtCreation is the reason why the agent does not set the field at the creation; "" for none.
func NoteForStart(whyNotAtCreation string) string {
	return strings.TrimPrefix(whyNotAtCreation+"; the agent writes the value when the container starts", "; ")
}

// copiedFields are the fields that have a cgroup file and whose values the runtime stores too.
var copiedFields = [...]lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit,
}

// CopiedFields lists the fields whose values the agent keeps up to date in the runtime's stored copy.
func CopiedFields() []lifecycle.Field { return copiedFields[:] }

// IsCopied reports whether the agent keeps a field's value up to date in the runtime's stored copy.
func IsCopied(f lifecycle.Field) bool { return slices.Contains(copiedFields[:], f) }

// CanWriteToKernel reports whether the agent can write a field to the kernel itself: to a cgroup file or a resctrl
// group, or with a system call (core scheduling).
func CanWriteToKernel(f lifecycle.Field) bool {
	switch f {
	case lifecycle.Unified, lifecycle.Hugepages, lifecycle.IOLimit,
		lifecycle.RDTSchemata, lifecycle.RDTGroup, lifecycle.RDTMonitor, lifecycle.CoreSched:
		return true
	}
	return IsCopied(f)
}

// CanSetOnProcess reports whether the agent can set a field on the processes of an existing container. The agent sets
// such a field once, if the container's creation cannot hold the field.
func CanSetOnProcess(f lifecycle.Field) bool {
	switch f {
	case lifecycle.ProcessLimit, lifecycle.ProcessIO, lifecycle.ProcessSched:
		return true
	}
	return false
}
