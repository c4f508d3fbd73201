package nodeview

import (
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Recorder counts events for metrics. The agent calls it while a runtime waits, so its methods must return at once. Text
// arguments have a limited number of values, because each value is a label in the metrics.
type Recorder interface {
	// Event counts an event at its end. took is the time to gather facts, decide and apply. decision is the part of took
	// for the decision.
	Event(kind lifecycle.Kind, took, decision time.Duration)
	// Refused counts a request that was not granted. kind is one of RefusedKinds.
	Refused(kind string)
	// HookError counts a problem of a hook, such as a panic. hook is the hook's name, or AgentPanic.
	HookError(hook string)
	// RuntimeUpdate counts an update of the values that the runtime stores for a container. result is one of
	// UpdateResults.
	RuntimeUpdate(result string)
}

// The kinds of refused requests, for Recorder.Refused.
const (
	refusedRequest       = "request"       // the agent refused a whole pod or container
	refusedAnnotation    = "annotation"    // an annotation is malformed
	refusedAuthorization = "authorization" // the namespace is not authorised for the request
	refusedPlacement     = "placement"     // CPUs or NUMA nodes could not be assigned
	refusedUnserved      = "unserved"      // no hook on this node serves the request
	failedCreation       = "creation"      // a creation failed after the answer, probably because another plugin sets the same field
)

// AgentPanic is the argument of HookError for a panic that no hook caused.
const AgentPanic = "none"

// The results of an update, for Recorder.RuntimeUpdate.
const (
	UpdateDone    = "done"
	UpdateRefused = "refused" // the runtime refused the update of this container
	UpdateFailed  = "failed"  // the call to the runtime failed
)

// RefusedKinds lists the kinds for Recorder.Refused. The metrics need them all, so that each series exists before its
// first event.
func RefusedKinds() []string {
	return []string{refusedRequest, refusedAnnotation, refusedAuthorization, refusedPlacement, refusedUnserved, failedCreation}
}

// UpdateResults lists the results for Recorder.RuntimeUpdate.
func UpdateResults() []string { return []string{UpdateDone, UpdateRefused, UpdateFailed} }

// NoRecorder is a Recorder that counts nothing.
type NoRecorder struct{}

// Event does nothing.
func (NoRecorder) Event(lifecycle.Kind, time.Duration, time.Duration) {}

// Refused does nothing.
func (NoRecorder) Refused(string) {}

// HookError does nothing.
func (NoRecorder) HookError(string) {}

// RuntimeUpdate does nothing.
func (NoRecorder) RuntimeUpdate(string) {}
