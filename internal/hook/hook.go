package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Info describes a hook. `trimtab hooks` and the docs print it. The agent subscribes to the runtime
// events in Stages.
type Info struct {
	Name           string            `json:"name"`
	About          string            `json:"about"`
	Stages         []lifecycle.Kind  `json:"stages"`
	Reads          []string          `json:"reads"` // label and annotation keys
	Sets           []lifecycle.Field `json:"sets"`
	SetsOnPod      []lifecycle.Field `json:"setsOnPod,omitempty"`
	KernelFeatures []string          `json:"kernel,omitempty"` // required features; "a|b" requires one of the two
	Compose        string            `json:"compose"`          // how it combines with other hooks
	FallbackOption string            `json:"-"`                // what to set if the kernel lacks a feature; "" for nothing
	Differs        []string          `json:"differs,omitempty"`
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
	// ContainerProperties has properties of the container that the runtime reported.
	ContainerProperties ContainerProperties
	// Pristine are the resources of the runtime's request, without the agent's changes.
	Pristine *lifecycle.Resources
	// Pool is the container's pool. CPUs are the CPUs of its group, as a kernel list. AssignedBy
	// is the key that led to the assignment, and AssignedWhy a clause that explains it.
	Pool        placement.PoolKind
	CPUs        string
	AssignedBy  string
	AssignedWhy string
	// Scheduling is the scheduling class that the container was created with.
	Scheduling lifecycle.SchedulingClass
	// Machine is the node's CPUs and memory; nil if unknown.
	Machine *topology.Machine
	// Mems are memory nodes as a kernel list; "" if none were decided.
	Mems string
	// ColdStart has the whole duration of the container's cold start and the memory nodes that the container gets
	// after it; zero if the container has no cold start, or the cold start is over.
	ColdStart lifecycle.ColdStart
	// Exclusive is set only for a pod. It has the CPUs that the pod's containers own and share with no
	// other pod, as a kernel list; "" if a container of the pod runs on other CPUs.
	Exclusive string
	// BurstSum is set only for a pod. It is the sum of the bursts of its live containers, in µs.
	BurstSum int64
	// GrantedDevices are the devices that the kubelet gave the container. RequestedDevices are the
	// devices in the runtime's request.
	GrantedDevices   lifecycle.DeviceGrant
	RequestedDevices lifecycle.DeviceGrant
	// Creation has facts that are known only at the first decision about a container; nil later.
	Creation *Creation
	// CPUEnv are the environment variables of the hook cpuEnv that the container was
	// created with.
	CPUEnv map[string]string
	// SkippedInterfaces are the host's network interfaces that the container requested, and that the
	// agent left out when the container was created.
	SkippedInterfaces []string
	// ExclusiveDevices are the container's exclusive CDI devices. DevicesRefused is the reason why a container that
	// requested exclusive devices got none. TakenDevices has the CDI devices that the pod names for the
	// container and that another container has exclusively, with the names of their owners.
	ExclusiveDevices []string
	DevicesRefused   string
	TakenDevices     map[string]string
}

// ContainerProperties has the properties of a container that policies can read. Hooks must not change it.
type ContainerProperties struct {
	Image       string // the image name in the runtime; "" if the runtime does not report it
	Command     string // the first argument; "" if the runtime reports no arguments
	BindMounts  bool   // the container has bind mounts
	Labels      map[string]string
	Annotations map[string]string // without the agent's record
}

// Creation has facts that hooks need only when a container is created.
type Creation struct {
	// Env is the environment in the runtime's request, NAME=value.
	Env []string
	// OwnedCPUs are the CPUs that the container owns, as a kernel list; "" for none.
	OwnedCPUs string
	// CPUs is the number of CPUs that the container may run on.
	CPUs int
	// PodValues are the values decided for the container's pod.
	PodValues []lifecycle.Value
	// HostInterfaces reports, by name of a network interface, whether the host has it. The map is nil
	// if the agent does not know that.
	HostInterfaces map[string]bool
	// PodInterfaces are the host's interfaces that other containers of the pod were created with. The
	// value is true if such a container has not started yet. Then the interface may still be on the
	// host.
	PodInterfaces map[string]bool
}

// Output collects a hook's proposals.
type Output struct {
	Values   []lifecycle.Value
	Scales   []Scale
	Problems []lifecycle.Problem
	// CPUEnv is stored, and is Input.CPUEnv in later decisions about the container.
	CPUEnv map[string]string
	// SkippedInterfaces is stored, and is Input.SkippedInterfaces in later decisions about the container.
	SkippedInterfaces []string
	// Matched reports that the hook's condition holds. Only hooks with a condition set it.
	Matched bool
	// Refusal is the reason why the container must not be created; "" if it may be created.
	Refusal string
	// Failure is the reason why the hook could not propose all of its values; "" if it could.
	Failure string
}

// Scale requests to divide a field by Divisor. The engine divides the value of another hook, or else the
// value in the runtime's request, but never the result of an earlier Scale. An unlimited field stays
// unlimited.
type Scale struct {
	Field   lifecycle.Field
	Divisor Ratio
	// OnlyDecided scales only the value of another hook, not the runtime's request.
	OnlyDecided bool
	Why         lifecycle.Reason
}

// Hook is one policy. Propose adds proposals to out. It must not change its input, or keep it after the call.
type Hook interface {
	Info() Info
	Propose(in *Input, out *Output)
}

// AfterOthersHook is a hook that depends on the values of all other hooks. The engine calls it last, with the
// final values of other hooks in out.
type AfterOthersHook interface {
	Hook
	AfterOthers()
}

// IntentChanger is a hook that changes a pod's intent, after the annotations and labels were read and
// authorised. The input has no container.
type IntentChanger interface {
	Hook
	ChangeIntent(in *Input, asked *intent.Pod, out *Output)
}

// DeviceGiver is a hook that gives containers the exclusive CDI devices that the engine chose for them.
type DeviceGiver interface {
	Hook
	// GivesKind reports whether a container may have exclusive devices of a kind, vendor/class. Kinds returns
	// all such kinds.
	GivesKind(kind string) bool
	Kinds() []string
}

// SpecReader is a hook that reads the spec of a pod's containers. The engine decides these
// containers again when the spec becomes known.
type SpecReader interface {
	Hook
	ReadsSpec() bool
}

// ConditionalHook is a hook with a condition from the configuration. The engine counts how often the
// condition holds.
type ConditionalHook interface {
	Hook
	// Condition returns the text of the condition.
	Condition() string
}

// lifetimeEvents returns the events for hooks whose values apply for the whole life of pods and
// containers.
func lifetimeEvents() []lifecycle.Kind {
	return []lifecycle.Kind{
		lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
		lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.PostUpdateContainer,
		lifecycle.StopContainer, lifecycle.RemoveContainer,
	}
}

// setNumber proposes a numeric value for the container, or for the pod if the input has no
// container.
func (o *Output) setNumber(in *Input, f lifecycle.Field, v int64, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Int: v, Why: why})
}

// setText proposes a text for the container, or for the pod if the input has no container.
func (o *Output) setText(in *Input, f lifecycle.Field, key, text string, why lifecycle.Reason) {
	o.Values = append(o.Values, lifecycle.Value{Field: f, Scope: in.Scope(), Key: key, Text: text, Why: why})
}

// setFile proposes the text of a cgroup v2 file. Package cgroup maps it to the file of cgroup v1, if
// there is one.
func (o *Output) setFile(in *Input, key, text string, why lifecycle.Reason) {
	o.setText(in, lifecycle.Unified, key, text, why)
}

// sets reports whether a hook has already proposed a value of a field. key is the entry of a field
// with entries.
func (o *Output) sets(f lifecycle.Field, key string) bool {
	return slices.ContainsFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == f && v.Key == key })
}

// report adds a problem.
func (o *Output) report(p lifecycle.Problem) { o.Problems = append(o.Problems, p) }

// decline reports a part of a request that the hook does not serve.
func (o *Output) decline(key, value, reason string) {
	o.report(lifecycle.Problem{Key: key, Value: value, Reason: reason, Refused: true})
}

// unauthorizedProblem returns the problem that a rule refuses a part of a request. but is an additional clause of the
// reason, or "".
func (in *Input) unauthorizedProblem(kind, key, value, rule, but string) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Value: value, Refused: true, Rule: rule,
		Reason: kind + ": pods of namespace " + namespaceOf(in) + " may not ask for it" + but + " (authorization: " + rule + ")",
	}
}

// scopedRequest returns the request that scoped annotations make for a container, and the reason for the
// values of a hook. ok is false if they request nothing for the container, or if the input is a pod.
func scopedRequest[T any](in *Input, from intent.Sourced[intent.PerContainer[T]], name string) (asked intent.Sourced[T], why lifecycle.Reason, ok bool) {
	asked = from.V.Of(in.Container)
	return asked, lifecycle.Reason{Hook: name, Source: asked.Key, Text: "requested for the container"}, in.Container != "" && asked.IsSet()
}

// addDevice proposes a device node of the host once, or reports that the host has no such device.
func (o *Output) addDevice(nodes map[string]lifecycle.Device, path string, why lifecycle.Reason) {
	d, has := nodes[path]
	if !has {
		o.Problems = append(o.Problems, lifecycle.Problem{Key: why.Source, Value: path, Reason: "this node has no such device"})
		return
	}
	if o.sets(lifecycle.DeviceNode, path) {
		return
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
