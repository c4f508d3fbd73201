package nodeview

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Recorder counts what happens, for metrics. It is called while a runtime
// waits: its methods return at once. Every text is one of a bounded set.
type Recorder interface {
	// Event counts an event at its end: how long it took to gather, decide and
	// apply, and how much of that was deciding.
	Event(kind lifecycle.Kind, took, decision time.Duration)
	// Refused counts a request that was not granted.
	Refused(kind string)
	// HookError counts a problem of a hook, such as a panic.
	HookError(hook string)
	// RuntimeUpdate counts an update of the runtime's stored copy.
	RuntimeUpdate(result string)
}

// The kinds for Refused.
const (
	refusedRequest    = "request"    // a whole pod or container
	refusedAnnotation = "annotation" // what could not be read
	// what the namespace is not authorised for
	refusedAuthorisation = "authorisation"
	refusedPlacement     = "placement" // CPUs or NUMA nodes that could not be given
	refusedUnserved      = "unserved"  // what nothing on this node does
)

// Ourselves is the hook of a panic that was no hook's.
const AgentPanic = "none"

// The results for RuntimeUpdate.
const (
	UpdateDone    = "done"
	UpdateRefused = "refused" // by the runtime, for this container
	UpdateFailed  = "failed"  // no answer
)

// RefusedKinds lists the kinds for Refused, so that each series exists before its
// first event.
func RefusedKinds() []string {
	return []string{refusedRequest, refusedAnnotation, refusedAuthorisation, refusedPlacement, refusedUnserved}
}

// UpdateResults lists the results of updates of the runtime's copy.
func UpdateResults() []string { return []string{UpdateDone, UpdateRefused, UpdateFailed} }

// NoRecorder records nothing.
type NoRecorder struct{}

// Event does nothing, as all methods here.
func (NoRecorder) Event(lifecycle.Kind, time.Duration, time.Duration) {}

// Refused does nothing.
func (NoRecorder) Refused(string) {}

// HookError does nothing.
func (NoRecorder) HookError(string) {}

// RuntimeUpdate does nothing.
func (NoRecorder) RuntimeUpdate(string) {}
