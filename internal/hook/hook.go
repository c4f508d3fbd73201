package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// Info describes a hook. `trimtab hooks`, the docs and the list of runtime events that the agent
// subscribes to are made from it.
type Info struct {
	Name    string            `json:"name"`
	About   string            `json:"about"`
	Stages  []lifecycle.Kind  `json:"stages"`
	Reads   []string          `json:"reads"` // label and annotation keys
	Sets    []lifecycle.Field `json:"sets"`
	Pod     []lifecycle.Field `json:"setsOnPod,omitempty"`
	Kernel  []string          `json:"kernel,omitempty"` // required features; of "a|b" one
	Compose string            `json:"compose"`          // how it combines with other hooks
	Instead string            `json:"-"`                // what to set where the kernel lacks these, or ""
	Differs []string          `json:"differs,omitempty"`
	// TestedOn names the test environment, if that was not a real kernel and runtime.
	TestedOn string `json:"tried,omitempty"`
}

// Input has all facts that a hook may use. Container is empty if values for the pod itself are
// requested.
type Input struct {
	Pod    *lifecycle.Pod
	Intent *intent.Pod
	// Spec has the facts about the pod that the runtime does not report; nil if unknown. A
	// container that Spec does not name counts as an app container.
	Spec      *lifecycle.PodSpec
	Container string
	// About is what the container is, as the runtime reported it.
	About About
	// Pristine are the resources of the runtime's request, without our changes.
	Pristine *lifecycle.Resources
	// Pool is the container's pool. CPUs are the CPUs of its group, as a kernel list. AssignedBy
	// is the key that led to the assignment, and AssignedWhy a clause that explains it.
	Pool        placement.Pool
	CPUs        string
	AssignedBy  string
	AssignedWhy string
	// Scheduling is the scheduling class that it was created with.
	Scheduling lifecycle.SchedulingClass
	// Mems are memory nodes as a kernel list; "" if none were decided.
	Mems string
	// Exclusive are, for a pod, the CPUs that its containers own and share with no other pod, as
	// a kernel list; "" if a container of the pod runs on other CPUs.
	Exclusive string
	// Bursts is, for a pod, the sum of its live containers' bursts, in µs.
	Bursts int64
	// Granted are the devices that the kubelet gave the container. RequestedDevices are the
	// devices in the runtime's request.
	Granted          lifecycle.DeviceGrant
	RequestedDevices lifecycle.DeviceGrant
	// Creation has facts that are known only at the first decision about a container; nil later.
	Creation *Creation
	// CPUEnv are the environment variables with its CPUs that the container was
	// created with.
	CPUEnv map[string]string
	// SkippedInterfaces are the host's network interfaces that the container asked for and was
	// created without.
	SkippedInterfaces []string
}

// About has the properties of a container that policies can read. Do not change it.
type About struct {
	Image       string // as the runtime names it; "" if it does not
	Command     string // the first of its arguments; "" if the runtime does not report any
	BindMounts  bool   // it has bind mounts
	Labels      map[string]string
	Annotations map[string]string // without ours
}

// Creation has facts that hooks need only when a container is created.
type Creation struct {
	// Env is the environment in the runtime's request, NAME=value.
	Env []string
	// Owned are the CPUs that it owns, as a kernel list; "" for none.
	Owned string
	// CPUs is the number of CPUs that it may run on.
	CPUs int
	// PodValues are the decided values of its pod.
	PodValues []lifecycle.Value
	// HostInterfaces reports whether the host has a network interface, by name; nil if that is
	// unknown.
	HostInterfaces map[string]bool
	// PodInterfaces are the host's interfaces that other containers of the pod were created with.
	// The value is true if such a container has not started yet, so that the interface may still be
	// on the host.
	PodInterfaces map[string]bool
}

// Output collects a hook's proposals.
type Output struct {
	Values   []lifecycle.Value
	Scales   []Scale
	Problems []lifecycle.Problem
	// CPUEnv becomes Input.CPUEnv at later decisions about the container, also after
	// a restart.
	CPUEnv map[string]string
	// SkippedInterfaces becomes Input.SkippedInterfaces in the same way.
	SkippedInterfaces []string
	// Matched reports that the hook's condition holds. Only hooks with a condition set it.
	Matched bool
	// Refuse is the reason why the container must not be created; "" if it may be created.
	Refuse string
	// Failed is the reason why the hook could not propose all of its values; "" if it could.
	Failed string
}

// Scale asks to divide a field: the value of another hook, or else the runtime's request, but
// never the result of an earlier Scale. A field without a limit keeps none.
type Scale struct {
	Field  lifecycle.Field
	Factor Ratio
	// OnlyDecided scales only the value of another hook, not the runtime's request.
	OnlyDecided bool
	Why         lifecycle.Reason
}

// Hook is one policy. Propose adds to out; it must neither store nor change in.
type Hook interface {
	Info() Info
	Propose(in *Input, out *Output)
}

// AfterAll is a hook that depends on the values of all others. It is asked when they are final,
// and finds them in out.
type AfterAll interface {
	Hook
	AfterOthers()
}

// IntentChanger is a hook that changes a pod's intent, after the annotations and labels were read and
// authorised. The input has no container.
type IntentChanger interface {
	Hook
	ChangeIntent(in *Input, asked *intent.Pod, out *Output)
}

// SpecReader is a hook that reads the spec of a pod's containers. The engine decides these
// containers again when the spec becomes known.
type SpecReader interface {
	Hook
	ReadsSpec() bool
}

// Conditional is a hook with a condition from the configuration. The engine counts how often the
// condition holds.
type Conditional interface {
	Hook
	// Condition is its text.
	Condition() string
}

// lifetimeEvents are the events of a hook whose values stay as long as pods and containers
// live.
func lifetimeEvents() []lifecycle.Kind {
	return []lifecycle.Kind{
		lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
		lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.PostUpdateContainer,
		lifecycle.StopContainer, lifecycle.RemoveContainer,
	}
}

// number proposes a numeric value for the container, or for the pod if the input has no
// container.
func (o *Output) number(in *Input, f lifecycle.Field, v int64, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Int: v, Why: why})
}

// text proposes a text for the container, or for the pod if the input has no container.
func (o *Output) text(in *Input, f lifecycle.Field, key, text string, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Key: key, Text: text, Why: why})
}

// file proposes the text of a cgroup v2 file. The cgroup package knows its name in version 1,
// if it has one.
func (o *Output) file(in *Input, key, text string, why lifecycle.Reason) {
	o.text(in, lifecycle.Unified, key, text, why)
}

// report adds a problem.
func (o *Output) report(p lifecycle.Problem) { o.Problems = append(o.Problems, p) }

// decline reports a part of a request that the hook does not serve.
func (o *Output) decline(key, value, reason string) {
	o.report(lifecycle.Problem{Key: key, Value: value, Reason: reason, Refused: true})
}

// scoped returns the request that annotations with scopes make for a container, and the reason
// for the values that a hook derives from it. ok is false if they request nothing for it, and if
// the input is a pod itself.
func scoped[T any](in *Input, from intent.Sourced[intent.PerContainer[T]], name string) (asked intent.Sourced[T], why lifecycle.Reason, ok bool) {
	asked = from.V.Of(in.Container)
	return asked, lifecycle.Reason{Hook: name, Source: asked.Key, Text: "its own"}, in.Container != "" && asked.IsSet()
}

// device adds a device node of the host once, or reports that it does not exist.
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

// Scope returns whether values of the pod or of a container are requested.
func (in *Input) Scope() lifecycle.Scope {
	if in.Container == "" {
		return lifecycle.OfPod
	}
	return lifecycle.OfContainer
}
