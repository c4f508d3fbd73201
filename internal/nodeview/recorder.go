package nodeview

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Recorder counts events for metrics. It is called while a runtime waits, so its methods return
// at once. Every text argument is one of a bounded set.
type Recorder interface {
	// Event counts an event at its end. took is the time to gather, decide and apply. decision is the part of took for
	// deciding.
	Event(kind lifecycle.Kind, took, decision time.Duration)
	// Refused counts a request that was not granted.
	Refused(kind string)
	// HookError counts a problem of a hook, such as a panic.
	HookError(hook string)
	// RuntimeUpdate counts an update of the runtime's stored copy of a container.
	RuntimeUpdate(result string)
}

// The kinds for Refused.
const (
	refusedRequest    = "request"    // a whole pod or container
	refusedAnnotation = "annotation" // malformed annotations
	// requests for which the namespace is not authorised
	refusedAuthorization = "authorization"
	refusedPlacement     = "placement" // CPUs or NUMA nodes that could not be assigned
	refusedUnserved      = "unserved"  // requests that no hook on this node serves
	failedCreation       = "creation"  // creations that failed after the answer: another plugin sets the same field
)

// AgentPanic is the hook label of a panic that no hook caused.
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
	return []string{refusedRequest, refusedAnnotation, refusedAuthorization, refusedPlacement, refusedUnserved, failedCreation}
}

// UpdateResults lists the results of updates of the runtime's copy.
func UpdateResults() []string { return []string{UpdateDone, UpdateRefused, UpdateFailed} }

// NoRecorder records nothing.
type NoRecorder struct{}

// Event does nothing.
func (NoRecorder) Event(lifecycle.Kind, time.Duration, time.Duration) {}

// Refused does nothing.
func (NoRecorder) Refused(string) {}

// HookError does nothing.
func (NoRecorder) HookError(string) {}

// RuntimeUpdate does nothing.
func (NoRecorder) RuntimeUpdate(string) {}
