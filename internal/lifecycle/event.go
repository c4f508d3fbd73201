package lifecycle

import "fmt"

// Kind is the kind of a lifecycle step.
type Kind int

// The lifecycle steps. NRI names all steps before Configure. Configure and the later steps are
// internal. Configure applies a new configuration to running pods. Inform reports a pod spec
// that became known or changed. Expect decides a container that no runtime has reported yet. Repair, Copy and WhatIf decide nothing: Repair writes values
// again, Copy updates the runtime's stored copy of a container, and WhatIf computes a decision
// that is not applied.
//
// PostCreateContainer reports that the runtime knows a container. It carries the id and cgroup,
// which CreateContainer may lack. PostUpdateContainer and PostStartContainer report that the
// runtime has written its own values.
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
	PostUpdateContainer
	PostCreateContainer
	PostStartContainer
	Configure
	Inform
	Expect
	Repair
	Copy
	WhatIf
	kinds
)

var kindNames = [...]string{
	"Synchronize", "RunPodSandbox", "UpdatePodSandbox", "StopPodSandbox", "RemovePodSandbox",
	"CreateContainer", "StartContainer", "UpdateContainer", "StopContainer", "RemoveContainer", "PostUpdateContainer",
	"PostCreateContainer", "PostStartContainer", "Configure", "Inform", "Expect", "Repair", "Copy", "WhatIf",
}

// String returns the name NRI uses for the step.
func (k Kind) String() string {
	if k < 0 || k >= kinds {
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

// Event is one lifecycle step as an attachment saw it. Which fields are set
// depends on Kind; a Synchronize carries lists, all others one pod and, for
// container steps, one container.
type Event struct {
	Kind      Kind
	Pod       *Pod
	Container *Container
	// Former is the id of the container in CreateContainer, if PostCreateContainer reports a
	// different id.
	Former string
	// Requested are the resources in an UpdateContainer or UpdatePodSandbox. Overhead is the pod
	// overhead in an UpdatePodSandbox.
	Requested *Resources
	Overhead  *Resources
	// Delegated says, in a PostCreateContainer or PostStartContainer, which values of the
	// container the attachment left to another program; nil for none.
	Delegated *Delegation `json:",omitempty"`

	Pods       []*Pod
	Containers []*Container
}

// Delegation is a set of fields of a new container that another program sets, such as an OCI
// runtime wrapper, and the result.
type Delegation struct {
	Fields FieldSet
	By     string // the program
	// Pending reports that the program has not run yet: it runs when the container starts.
	Pending bool
	// Err is why the container has none of these values; "" if it has all of them.
	Err string
}
