package hookserver

import "github.com/trimtab/trimtab/internal/lifecycle"

// Stage is a moment at which hook servers are called, by its name in their files.
type Stage string

// The stages. The protocol has the name PreRemoveRunPodSandbox and no call for it.
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
	// Call is the name of the protocol's call; "" where it has none.
	Call string
	// Answered: the event waits for the call, whose answer counts. Waits: it waits
	// for the call, and only a refusal counts. Else it does not wait.
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

// stageOf returns the stage for an event's kind; ok is false if it has none, or
// none with a call.
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
