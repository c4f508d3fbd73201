package lifecycle

import "fmt"

// Kind is the kind of a lifecycle step.
type Kind int

// The lifecycle steps. The steps before Configure have the names that NRI uses. Configure and the later
// steps are internal.
const (
	Synchronize Kind = iota
	RunPodSandbox
	UpdatePodSandbox
	StopPodSandbox
	RemovePodSandbox
	CreateContainer
	StartContainer
	UpdateContainer
	StopContainer
	RemoveContainer
	PostUpdateContainer // the runtime has written its own values for an UpdateContainer
	PostCreateContainer // the runtime has created the container, so its id and cgroup are known
	PostStartContainer  // the runtime has started the container, and has written its own values
	Configure           // applies a new configuration to running pods
	Inform              // reports a new or changed pod spec
	Expect              // decides about a container that no runtime has reported yet
	Repair              // writes the values of the last decision again
	Copy                // sends values to the runtime, which stores the resources of each container
	WhatIf              // computes a decision without applying it
	kindCount           // the number of kinds
)

// kindNames has the name of each Kind, in the order of the constants.
var kindNames = [...]string{
	"Synchronize", "RunPodSandbox", "UpdatePodSandbox", "StopPodSandbox", "RemovePodSandbox",
	"CreateContainer", "StartContainer", "UpdateContainer", "StopContainer", "RemoveContainer", "PostUpdateContainer",
	"PostCreateContainer", "PostStartContainer", "Configure", "Inform", "Expect", "Repair", "Copy", "WhatIf",
}

// String returns the name of the step, which is NRI's name if NRI has the step.
func (k Kind) String() string {
	if k < 0 || k >= kindCount {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return kindNames[k]
}

// MarshalText makes a Kind readable in JSON and YAML.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, n := range kindNames {
		if n == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown event %q", b)
}

// Event is one lifecycle step. The attachments, which connect the agent to runtimes, report the kinds before Configure.
// The agent itself makes Configure and the later kinds. Kind determines which fields are set: a Synchronize has Pods
// and Containers, a pod step has Pod, and a container step has Pod and Container.
type Event struct {
	Kind      Kind
	Pod       *Pod
	Container *Container
	// Former is the container's id in the CreateContainer event. It is set only in a PostCreateContainer that
	// reports another id for the container.
	Former string
	// Requested are the new resources in an UpdateContainer or UpdatePodSandbox. Overhead is the new pod
	// overhead in an UpdatePodSandbox.
	Requested *Resources
	Overhead  *Resources
	// Delegated is set in a PostCreateContainer or PostStartContainer if another program, instead of the
	// attachment, sets some of the container's values.
	Delegated *Delegation `json:",omitempty"`

	Pods       []*Pod
	Containers []*Container
}

// Delegation describes the fields of a new container that are set by another program, such as an OCI runtime wrapper,
// and not by the agent.
type Delegation struct {
	Fields FieldSet
	By     string // the name of the program that sets the fields
	// Pending reports whether the program has still to run. It runs when the container starts.
	Pending bool
	// Err is the reason why the program set none of the fields; "" if it set all of them, or has still to run.
	Err string
}
