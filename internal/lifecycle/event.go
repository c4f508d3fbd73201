package lifecycle

import "fmt"

// Kind is the kind of a lifecycle step.
type Kind int

// The lifecycle steps. Configure, Inform and Repair are ours: a changed configuration
// reaching what runs, a pod spec that became known or changed, and values that are
// written again, about which nothing is decided; all others are named as NRI names them. PostCreateContainer tells that the runtime knows
// a container, and its id and cgroup where it was decided before it had them;
// PostUpdateContainer and PostStartContainer that the runtime has written its
// own values.
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
	Repair
	kinds
)

var kindNames = [...]string{
	"Synchronize", "RunPodSandbox", "UpdatePodSandbox", "StopPodSandbox", "RemovePodSandbox",
	"CreateContainer", "StartContainer", "UpdateContainer", "StopContainer", "RemoveContainer", "PostUpdateContainer",
	"PostCreateContainer", "PostStartContainer", "Configure", "Inform", "Repair",
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
	// Former is the id a container was decided under at its CreateContainer,
	// where the runtime has now given it another (PostCreateContainer).
	Former string
	// Requested are the resources an UpdateContainer or UpdatePodSandbox asks
	// for; Overhead those of the pod's overhead in an UpdatePodSandbox.
	Requested *Resources
	Overhead  *Resources

	Pods       []*Pod
	Containers []*Container
}
