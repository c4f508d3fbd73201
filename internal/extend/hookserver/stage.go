package hookserver

import "github.com/trimtab/trimtab/internal/lifecycle"

// Stage is a moment at which hook servers are called, by its name in their files.
type Stage string

// The stages. The protocol has the name PreRemoveRunPodSandbox but no call for it.
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

// StageInfo describes a stage; the docs print it.
type StageInfo struct {
	Stage Stage
	// Kind is the event at which servers are called.
	Kind lifecycle.Kind
	// Call is the name of the protocol's call, or "" if the protocol has none.
	Call string
	// Answered means that the event waits for the call, and its answer counts. Waits means that the event waits for
	// the call, but only a refusal counts. If both are false the event does not wait.
	Answered, Waits bool
}

var stages = []StageInfo{
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
func Stages() []StageInfo { return stages }

// stageOf returns the stage for an event's kind. ok is false if there is no stage, or no call for it.
func stageOf(k lifecycle.Kind) (StageInfo, bool) {
	for _, s := range stages {
		if s.Kind == k && s.Call != "" {
			return s, true
		}
	}
	return StageInfo{}, false
}

func known(s Stage) bool {
	for _, i := range stages {
		if i.Stage == s {
			return true
		}
	}
	return false
}
