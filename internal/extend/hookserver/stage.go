package hookserver

import "github.com/trimtab/trimtab/internal/lifecycle"

// Stage is the name of a step in the life of a pod or container at which the agent calls hook servers. The registration
// files of servers use these names.
type Stage string

// The stages. The protocol defines the name PreRemoveRunPodSandbox, but no method for this stage.
const (
	PreRunPodSandbox            Stage = "PreRunPodSandbox"
	PreCreateContainer          Stage = "PreCreateContainer"
	PreStartContainer           Stage = "PreStartContainer"
	PostStartContainer          Stage = "PostStartContainer"
	PreUpdateContainerResources Stage = "PreUpdateContainerResources"
	PostStopContainer           Stage = "PostStopContainer"
	PostStopPodSandbox          Stage = "PostStopPodSandbox"
	PreRemoveRunPodSandbox      Stage = "PreRemoveRunPodSandbox"
)

// StageDescription describes a stage; the docs print it.
type StageDescription struct {
	Stage Stage
	// Kind is the kind of event at which the agent calls servers.
	Kind lifecycle.Kind
	// Call is the name of the protocol's method, or "" if the protocol has none.
	Call string
	// EventWaits means that the event waits for the call, so a failed call can make the event fail. AnswerApplies
	// means that the answer changes the event. If AnswerApplies is true, EventWaits is true too.
	AnswerApplies, EventWaits bool
}

// stages has all stages, in the order in which they occur in the life of a pod.
var stages = []StageDescription{
	{PreRunPodSandbox, lifecycle.RunPodSandbox, "PreRunPodSandboxHook", true, true},
	{PreCreateContainer, lifecycle.CreateContainer, "PreCreateContainerHook", true, true},
	{PreStartContainer, lifecycle.StartContainer, "PreStartContainerHook", false, true},
	{PostStartContainer, lifecycle.PostStartContainer, "PostStartContainerHook", false, false},
	{PreUpdateContainerResources, lifecycle.UpdateContainer, "PreUpdateContainerResourcesHook", true, true},
	{PostStopContainer, lifecycle.StopContainer, "PostStopContainerHook", false, false},
	{PostStopPodSandbox, lifecycle.StopPodSandbox, "PostStopPodSandboxHook", false, false},
	{PreRemoveRunPodSandbox, lifecycle.RemovePodSandbox, "", false, false},
}

// Stages returns all stages.
func Stages() []StageDescription { return stages }

// stageOf returns the stage for a kind of event; false if there is no stage, or if the protocol has no method for the
// stage.
func stageOf(k lifecycle.Kind) (StageDescription, bool) {
	for _, s := range stages {
		if s.Kind == k && s.Call != "" {
			return s, true
		}
	}
	return StageDescription{}, false
}

func isKnownStage(s Stage) bool {
	for _, i := range stages {
		if i.Stage == s {
			return true
		}
	}
	return false
}
