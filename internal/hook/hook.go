package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Info describes a hook. `trimtab hooks` and the docs print it.
type Info struct {
	Name   string           `json:"name"`
	About  string           `json:"about"`  // a summary of what the hook sets
	Stages []lifecycle.Kind `json:"stages"` // the runtime events to which the agent subscribes because of the hook
	Reads  []string         `json:"reads"`  // label and annotation keys
	// Sets are the fields that the hook sets for a container. SetsOnPod are those that it sets for the pod's own
	// cgroup.
	Sets           []lifecycle.Field `json:"sets"`
	SetsOnPod      []lifecycle.Field `json:"setsOnPod,omitempty"`
	KernelFeatures []string          `json:"kernel,omitempty"`  // required features; "a|b" requires one of the two
	Compose        string            `json:"compose"`           // how the hook combines with other hooks
	FallbackOption string            `json:"-"`                 // the option that helps if the kernel lacks a feature; "" for none
	Differs        []string          `json:"differs,omitempty"` // differences from the system whose annotation keys the hook reads
	// TestedOn names the test environment, if the hook was not tested on a real kernel and runtime.
	TestedOn string `json:"tried,omitempty"`
}

// Input has all facts that a hook may use.
type Input struct {
	Pod *lifecycle.Pod
	// Intent has the requests in the labels and annotations of the pod.
	Intent *intent.Pod
	// Spec has the facts about the pod that the runtime does not report; nil if unknown. A
	// container that Spec does not name counts as an app container.
	Spec *lifecycle.PodSpec
	// Container is the name of the container for which the hook must propose values. If it is empty, the hook must
	// propose values for the pod's own cgroup.
	Container string
	// ContainerProperties has properties of the container that the runtime reported.
	ContainerProperties ContainerProperties
	// Pristine are the resources in the runtime's request, without the agent's changes.
	Pristine *lifecycle.Resources
	// Pool is the kind of the container's CPU pool. CPUs are the CPUs that the engine chose for the container, as a
	// kernel list such as 0-3,8. AssignedBy is the label, annotation or option that determined CPUs. AssignedWhy is a
	// clause that explains the choice.
	Pool        placement.PoolKind
	CPUs        string
	AssignedBy  string
	AssignedWhy string
	// Scheduling is the scheduling class that the container was created with.
	Scheduling lifecycle.SchedulingClass
	// Machine is the node's CPUs and memory; nil if unknown.
	Machine *topology.Machine
	// Mems are the memory nodes that the engine chose for the container, as a kernel list; "" if it chose none.
	Mems string
	// ColdStart has the whole duration of the container's cold start, and the memory nodes that the container gets
	// after the cold start. It is zero if the container has no cold start, or if the cold start is over.
	ColdStart lifecycle.ColdStart
	// ExclusiveCPUs is set only for a pod. It has the CPUs that the pod's containers own and share with no
	// other pod, as a kernel list; "" if a container of the pod runs on other CPUs.
	ExclusiveCPUs string
	// BurstSum is set only for a pod. It is the sum of the CPU bursts of the pod's live containers, in µs.
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
	// requested exclusive devices got none. The keys of TakenDevices are CDI devices that the pod names for this
	// container, but that another container has exclusively. Each value is the name of that other container.
	ExclusiveDevices []string
	DevicesRefused   string
	TakenDevices     map[string]string
}

// ContainerProperties has the properties of a container that policies can read. Hooks must not change its maps.
type ContainerProperties struct {
	Image       string // the image name in the runtime; "" if the runtime does not report it
	Command     string // the program, that is, the first word of the command line; "" if the runtime does not report it
	BindMounts  bool   // the container has bind mounts
	Labels      map[string]string
	Annotations map[string]string // without the annotation in which the agent keeps its decisions
}

// Creation has facts that hooks need only when a container is created.
type Creation struct {
	// Env is the environment in the runtime's request, NAME=value.
	Env []string
	// OwnedCPUs are the CPUs that the container owns, as a kernel list; "" for none.
	OwnedCPUs string
	// CPUs is the number of CPUs that the container may run on.
	CPUs int
	// PodValues are the values that the engine decided for the cgroup of the container's pod.
	PodValues []lifecycle.Value
	// HostInterfaces reports, by name of a network interface, whether the host has the interface. The map is nil if the
	// agent does not know the host's interfaces.
	HostInterfaces map[string]bool
	// PodInterfaces has as keys the host's interfaces with which other containers of the pod were created. A value is
	// true if one of these containers has not started yet. The interface is then possibly still on the host, until that
	// container starts.
	PodInterfaces map[string]bool
}

// Output collects a hook's proposals.
type Output struct {
	Values   []lifecycle.Value   // the proposed values
	Scales   []Scale             // requests to divide values
	Problems []lifecycle.Problem // what the hook could not do, or did not grant
	// CPUEnv are the environment variables of the hook cpuEnv. The engine stores them, and passes them as Input.CPUEnv
	// in later decisions about the container.
	CPUEnv map[string]string
	// SkippedInterfaces are interfaces that the container is created without. The engine stores them, and passes them
	// as Input.SkippedInterfaces in later decisions about the container.
	SkippedInterfaces []string
	// Matched reports that the condition of a ConditionalHook holds. Other hooks do not set Matched.
	Matched bool
	// Refusal is the reason why the container must not be created; "" if it may be created.
	Refusal string
	// Failure is the reason why the hook could not propose all of its values; "" if it could.
	Failure string
}

// Scale requests that the engine divides the value of a field by Divisor. The engine divides the value that another
// hook proposed. If there is none, it divides the value in the runtime's request. It never divides the result of an
// earlier decision. An unlimited field stays unlimited.
type Scale struct {
	Field   lifecycle.Field
	Divisor Ratio
	// OnlyDecided means that the engine divides only a value that another hook proposed, not the runtime's request.
	OnlyDecided bool
	Why         lifecycle.Reason
}

// Hook is one policy. Propose adds proposals to the Output. Propose must not change the Input, and must not keep the
// Input or its maps after the call.
type Hook interface {
	// Info describes the hook.
	Info() Info
	// Propose adds the hook's proposals for one container, or for a pod's own cgroup, to out.
	Propose(in *Input, out *Output)
}

// AfterOthersHook is a hook that depends on the values of all other hooks. The engine calls it after the other hooks,
// with their final values in the Output.
type AfterOthersHook interface {
	Hook
	AfterOthers() // does nothing; it only marks the hook
}

// IntentChanger is a hook that changes the requests of a pod. The engine calls it after the pod's labels and
// annotations were read and authorised.
type IntentChanger interface {
	Hook
	// ChangeIntent changes the pod's requests in asked. Input.Container is empty.
	ChangeIntent(in *Input, asked *intent.Pod, out *Output)
}

// DeviceGiver is a hook that gives containers the exclusive CDI devices that the engine chose for them.
type DeviceGiver interface {
	Hook
	// GivesKind reports whether a container may have exclusive devices of a kind, such as vendor.com/class.
	GivesKind(kind string) bool
	// Kinds returns all kinds of which a container may have exclusive devices.
	Kinds() []string
}

// SpecReader is a hook that can read the spec of a pod's containers.
type SpecReader interface {
	Hook
	// ReadsSpec reports whether the hook reads the spec. If it does, the engine decides a pod's containers again when
	// the pod's spec becomes known.
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

// setFile proposes the text of a cgroup v2 file. With cgroup v1, package cgroup converts the name and the text to those
// of the cgroup v1 file, if there is one.
func (o *Output) setFile(in *Input, key, text string, why lifecycle.Reason) {
	o.setText(in, lifecycle.Unified, key, text, why)
}

// hasProposal reports whether a hook has already proposed a value of a field. If the field is a map, key is the key of
// the entry; otherwise key is "".
func (o *Output) hasProposal(f lifecycle.Field, key string) bool {
	return slices.ContainsFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == f && v.Key == key })
}

// addProblem adds a problem.
func (o *Output) addProblem(p lifecycle.Problem) { o.Problems = append(o.Problems, p) }

// decline reports that the hook does not grant a part of a pod's request.
func (o *Output) decline(key, value, reason string) {
	o.addProblem(lifecycle.Problem{Key: key, Value: value, Reason: reason, Refused: true})
}

// unauthorizedProblem returns a problem: an authorization rule refuses a part of a request. The text in clause becomes
// a part of the problem's reason; clause can be "".
func (in *Input) unauthorizedProblem(kind, key, value, rule, clause string) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Value: value, Refused: true, Rule: rule,
		Reason: kind + ": pods of namespace " + namespaceOf(in) + " may not ask for it" + clause + " (authorization: " + rule + ")",
	}
}

// scopedRequest returns what a pod requests for the container of the input, by annotations such as KEY/container.NAME
// and KEY/pod. The parameter name is the name of the hook. The result why is the reason for the values that this hook
// proposes. The result ok is false if the pod requests nothing for the container, or if the input has no container.
func scopedRequest[T any](in *Input, from intent.Sourced[intent.PerContainer[T]], name string) (asked intent.Sourced[T], why lifecycle.Reason, ok bool) {
	asked = from.V.Of(in.Container)
	return asked, lifecycle.Reason{Hook: name, Source: asked.Key, Text: "requested for the container"}, in.Container != "" && asked.IsSet()
}

// addDevice proposes a device node of the host, if no hook has proposed it already. If the host has no such device,
// addDevice reports that.
func (o *Output) addDevice(nodes map[string]lifecycle.Device, path string, why lifecycle.Reason) {
	d, has := nodes[path]
	if !has {
		o.Problems = append(o.Problems, lifecycle.Problem{Key: why.Source, Value: path, Reason: "this node has no such device"})
		return
	}
	if o.hasProposal(lifecycle.DeviceNode, path) {
		return
	}
	o.Values = append(o.Values, lifecycle.Value{Field: lifecycle.DeviceNode, Key: path, Device: &d, Why: why})
}

// Scope returns OfPod if the hook must propose values for the pod's own cgroup, and OfContainer otherwise.
func (in *Input) Scope() lifecycle.Scope {
	if in.Container == "" {
		return lifecycle.OfPod
	}
	return lifecycle.OfContainer
}
