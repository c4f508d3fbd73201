package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Info is what a hook states about itself. `trimtab hooks`, the docs and the
// subscription at the runtime are made from it.
type Info struct {
	Name    string            `json:"name"`
	About   string            `json:"about"`
	Stages  []lifecycle.Kind  `json:"stages"`
	Reads   []string          `json:"reads"` // label and annotation keys
	Sets    []lifecycle.Field `json:"sets"`
	Pod     []lifecycle.Field `json:"setsOnPod,omitempty"`
	Kernel  []string          `json:"kernel,omitempty"` // features needed; of "a|b" one
	Compose string            `json:"compose"`          // what happens beside other hooks
	Differs []string          `json:"differs,omitempty"`
	// Tried says on what it was tried where that is less than a kernel and
	// runtime of its own.
	TestedOn string `json:"tried,omitempty"`
}

// Input is what a hook sees. Container is empty when values for the pod itself
// are asked for.
type Input struct {
	Pod    *lifecycle.Pod
	Intent *intent.Pod
	// Spec is what the pod's spec says beyond what the runtime reports; nil where it
	// is unknown. A container that it does not name is an app container.
	Spec      *lifecycle.PodSpec
	Container string
	// About is what the container is, as the runtime reported it.
	About About
	// Pristine are the resources as the runtime asked for them, before any
	// change of ours.
	Pristine *lifecycle.Resources
	// Pool is where the container sits. CPUs are its seat's CPUs as a kernel list;
	// SeatFrom is the key and SeatWhy the clause that led to the seat.
	Pool        placement.Pool
	CPUs        string
	AssignedBy  string
	AssignedWhy string
	// Mems are memory nodes as a kernel list, "" where none were decided.
	Mems string
	// Alone are, for a pod, the CPUs its containers own and share with nobody
	// outside of it, as a kernel list; "" where one of them is to run elsewhere.
	Exclusive string
	// Bursts are, for a pod, the bursts its live containers were decided, in µs
	// together.
	Bursts int64
	// Granted are the devices the kubelet gave the container, RequestedDevices those
	// that were in the runtime's request for it.
	Granted          lifecycle.DeviceGrant
	RequestedDevices lifecycle.DeviceGrant
	// Creation is what only the first decision on a container knows; nil later.
	Creation *Creation
	// CPUEnv are the environment variables about its CPUs that the container got
	// when it was created.
	CPUEnv map[string]string
}

// About is what a container is, as far as policies look at it. It is not to be
// changed.
type About struct {
	Image       string // as the runtime names it; "" if it does not
	Labels      map[string]string
	Annotations map[string]string // without ours
}

// Creation is what counts when a container is created, and never again.
type Creation struct {
	// Env is the environment in the runtime's request, NAME=value.
	Env []string
	// Owned are the CPUs that it owns, as a kernel list: chosen by a scheduler, the
	// agent or the kubelet. "" for none.
	Owned string
	// CPUs is how many CPUs it may run on.
	CPUs int
	// PodValues are those decided for its pod.
	PodValues []lifecycle.Value
}

// Output collects a hook's proposals.
type Output struct {
	Values   []lifecycle.Value
	Scales   []Scale
	Problems []lifecycle.Problem
	// CPUEnv are what Input.Exports is at later decisions on the container, also
	// after a restart.
	CPUEnv map[string]string
	// Matched says that the hook's condition holds; of hooks that have one.
	Matched bool
	// Refuse is why the container must not be created; "" if it may.
	Refuse string
	// Failed is why the hook could not propose all it has; "" if it could.
	Failed string
}

// Scale asks that a field be divided: what another hook sets it to, or else
// what the runtime asked for, never what an earlier scaling made of it. A field
// without a limit stays without.
type Scale struct {
	Field lifecycle.Field
	By    Ratio
	// Set scales only what another hook sets, not what the runtime asked for.
	Set bool
	Why lifecycle.Reason
}

// Hook is one policy. Propose adds to out; it must not keep or change in.
type Hook interface {
	Info() Info
	Propose(in *Input, out *Output)
}

// Last is a hook that goes by what all others decided. It is asked when their
// values are final, and finds them in out.
type AfterAll interface {
	Hook
	AfterOthers()
}

// Wisher is a hook that changes what a pod asks for, after its annotations and
// labels were read and authorised. The input has no container.
type Wisher interface {
	Hook
	Wish(in *Input, asked *intent.Pod, out *Output)
}

// lives are the events of a hook whose values are kept for as long as pods and
// containers live.
func lifetimeEvents() []lifecycle.Kind {
	return []lifecycle.Kind{
		lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
		lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.PostUpdateContainer,
		lifecycle.StopContainer, lifecycle.RemoveContainer,
	}
}

// number proposes a numeric value for the container, or for the pod where the
// input has no container.
func (o *Output) number(in *Input, f lifecycle.Field, v int64, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Int: v, Why: why})
}

// text proposes a text for the container, or for the pod where the input has no
// container.
func (o *Output) text(in *Input, f lifecycle.Field, key, text string, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Key: key, Text: text, Why: why})
}

// file proposes the text of a file of cgroup version 2, which the tree knows by
// its other name in version 1 where it has one.
func (o *Output) file(in *Input, key, text string, why lifecycle.Reason) {
	o.text(in, lifecycle.Unified, key, text, why)
}

// report reports a problem.
func (o *Output) report(p lifecycle.Problem) { o.Problems = append(o.Problems, p) }

// device hands over a node of the host, or reports that it is not there. A node
// given twice is given once.
func (o *Output) device(nodes map[string]lifecycle.Device, path string, why lifecycle.Reason) {
	d, has := nodes[path]
	if !has {
		o.Problems = append(o.Problems, lifecycle.Problem{Key: why.Source, Value: path, Reason: "this node has no such device"})
		return
	}
	for _, v := range o.Values {
		if v.Field == lifecycle.DeviceNode && v.Key == path {
			return
		}
	}
	o.Values = append(o.Values, lifecycle.Value{Field: lifecycle.DeviceNode, Key: path, Device: &d, Why: why})
}

// Scope says whose values are asked for.
func (in *Input) Scope() lifecycle.Scope {
	if in.Container == "" {
		return lifecycle.OfPod
	}
	return lifecycle.OfContainer
}
