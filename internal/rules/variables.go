package rules

import (
	"math"

	"cel.dev/cel-go/common/types"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// The types of the variables.
var (
	podType       = types.NewObjectType("trimtab.Pod")
	containerType = types.NewObjectType("trimtab.Container")
	resourcesType = types.NewObjectType("trimtab.Resources")
	stringMap     = types.NewMapType(types.StringType, types.StringType)
)

// Variable is one field of the variables pod and container, for docs.
type Variable struct {
	Name  string // e.g. pod.labels
	Type  string
	About string // the description
}

// member is one field of the variable pod or container. The function get returns its value: a string, a map of strings
// or a *celObject.
type member struct {
	name  string
	kind  *types.Type
	about string
	get   func(*subject) any
}

// subject is the pod and container for which one rule is evaluated.
type subject struct {
	in         *hook.Input
	namespaces map[string]map[string]string // labels by namespace

	pod, container, podResources, resources celObject
}

// celObject is the CEL object for a part of the subject: the pod, the container or the resources of one of them.
type celObject struct {
	kind    *types.Type
	subject *subject
}

func newSubject(in *hook.Input, namespaces map[string]map[string]string) *subject {
	s := &subject{in: in, namespaces: namespaces}
	s.pod, s.container = celObject{podType, s}, celObject{containerType, s}
	s.podResources, s.resources = celObject{resourcesType, s}, celObject{resourcesType, s}
	return s
}

// podMembers are the fields of the variable pod.
var podMembers = []member{
	{"name", types.StringType, "the pod's name", func(s *subject) any { return s.in.Pod.Name }},
	{"namespace", types.StringType, "the pod's namespace", func(s *subject) any { return s.in.Pod.Namespace }},
	{
		"namespaceLabels", stringMap, "the labels of the pod's namespace, as the API server last reported them; needs `cluster.enabled`",
		func(s *subject) any { return s.namespaces[s.in.Pod.Namespace] },
	},
	{"labels", stringMap, "the pod's labels when it was created", func(s *subject) any { return s.in.Pod.Labels }},
	{"annotations", stringMap, "the pod's annotations when it was created", func(s *subject) any { return s.in.Pod.Annotations }},
	{
		"class", types.StringType, "the pod's class: `none`, `system`, `dedicated`, `shared` or `reclaimed`, from its authorised request or from an earlier rule",
		func(s *subject) any { return s.in.Intent.Class.V.String() },
	},
	{
		"qos", types.StringType, "the pod's QoS class in Kubernetes: `Guaranteed`, `Burstable` or `BestEffort`; `unknown` if the pod has no cgroup parent and no source reports its spec",
		func(s *subject) any { return s.in.Intent.QoS.String() },
	},
	{"pool", types.StringType, "the pool that the pod requests by name, or empty", func(s *subject) any { return s.in.Intent.Pool.V }},
	{
		"runtimeHandler", types.StringType, "the runtime handler of the pod's RuntimeClass, or empty",
		func(s *subject) any { return s.in.Pod.RuntimeHandler },
	},
	{
		"resources", resourcesType, "the resources of the whole pod, as the kubelet computes them",
		func(s *subject) any { return &s.podResources },
	},
}

// containerMembers are the fields of the variable container.
var containerMembers = []member{
	{"name", types.StringType, "the container's name", func(s *subject) any { return s.in.Container }},
	{"image", types.StringType, "the name of the container's image in the runtime, or empty", func(s *subject) any { return s.in.ContainerProperties.Image }},
	{
		"kind", types.StringType, "the container's kind: `app`, `init`, `sidecar` or `ephemeral`; empty while the agent does not know the pod's spec",
		func(s *subject) any { return s.kindOf() },
	},
	{"labels", stringMap, "the container's labels in the runtime", func(s *subject) any { return s.in.ContainerProperties.Labels }},
	{"annotations", stringMap, "the container's annotations in the runtime", func(s *subject) any { return s.in.ContainerProperties.Annotations }},
	{"resources", resourcesType, "the container's resources in the kubelet's request to the runtime", func(s *subject) any { return &s.resources }},
}

// resourceMembers are the fields of pod.resources and container.resources. The function in the member named "of"
// returns the value of a field; its parameter v is pod.resources or container.resources.
var resourceMembers = []struct {
	name  string
	about string
	of    func(v *celObject) int64
}{
	{"cpu", "the CPU request in milli-CPUs, from the pod's spec, or from the CPU shares if the spec is unknown or has no request", (*celObject).requestedCPU},
	{"cpuLimit", "the CPU limit in milli-CPUs, or 0 for no limit", (*celObject).limitCPU},
	{"memory", "the memory limit in bytes, or 0 for no limit", func(v *celObject) int64 { return max(v.requestedResources().Memory.Limit.V, 0) }},
	{"memoryRequest", "the memory request in bytes, or 0 while the agent does not know the pod's spec", func(v *celObject) int64 { return v.requests()[lifecycle.ResourceMemory] }},
	{"shares", "CPU shares", func(v *celObject) int64 { return int64(min(v.requestedResources().CPU.Shares.V, math.MaxInt64)) }},
	{"quota", "the CFS quota in µs per period; 0 or less means no quota", func(v *celObject) int64 { return v.requestedResources().CPU.Quota.V }},
	{"period", "the CFS period in µs", func(v *celObject) int64 { return int64(min(v.requestedResources().CPU.Period.V, math.MaxInt64)) }},
}

// Variables lists the fields of the variables in the order of the docs.
func Variables() []Variable {
	var all []Variable
	for _, of := range []struct {
		name    string
		members []member
	}{{"pod", podMembers}, {"container", containerMembers}} {
		for _, m := range of.members {
			name := m.kind.String()
			switch m.kind {
			case stringMap:
				name = "map of strings"
			case resourcesType:
				name = "resources"
			}
			all = append(all, Variable{of.name + "." + m.name, name, m.about})
		}
	}
	for _, m := range resourceMembers {
		all = append(all, Variable{"resources." + m.name, "int", m.about})
	}
	return all
}

// kindOf returns the kind of the container from the pod's spec. Without a spec, it returns "".
func (s *subject) kindOf() string {
	if s.in.Spec == nil {
		return ""
	}
	c, _ := s.in.Spec.Container(s.in.Container)
	return c.Kind.String()
}

// requestedResources returns the resources that the kubelet requested from the runtime for the pod or container.
func (v *celObject) requestedResources() *lifecycle.Resources {
	r := v.subject.in.Pod.Resources
	if v == &v.subject.resources {
		r = v.subject.in.Pristine
	}
	if r == nil {
		return &noResources
	}
	return r
}

// noResources are the resources of a pod or container for which the runtime reports none. No code modifies them.
var noResources lifecycle.Resources

// requests returns the requests of the pod or container in the pod's spec. Without a spec, it returns nil.
func (v *celObject) requests() lifecycle.Amounts {
	spec := v.subject.in.Spec
	switch {
	case spec == nil:
		return nil
	case v == &v.subject.podResources:
		return spec.Requests
	}
	c, _ := spec.Container(v.subject.in.Container)
	return c.Requests
}

const (
	milliOfCPU  = 1000 // the milli-CPUs of one CPU
	sharesOfCPU = 1024 // the kubelet's CPU shares of one CPU
	minShares   = 2    // the kubelet sets this if nothing is requested
)

// requestedCPU returns the CPU request in milli-CPUs. If the spec is unknown or has no CPU request, it computes the
// request from the CPU shares. The kubelet's shares are the request times 1024/1000, rounded down.
func (v *celObject) requestedCPU() int64 {
	if milli, isSet := v.requests()[lifecycle.ResourceCPU]; isSet {
		return milli
	}
	shares := int64(min(v.requestedResources().CPU.Shares.V, math.MaxInt32))
	if shares <= minShares {
		return 0
	}
	return (shares*milliOfCPU + sharesOfCPU - 1) / sharesOfCPU
}

// limitCPU returns the CPU limit in milli-CPUs, from quota and period.
func (v *celObject) limitCPU() int64 {
	cpu := &v.requestedResources().CPU
	quota, period := cpu.Quota.V, int64(min(cpu.Period.Or(100000), math.MaxInt32))
	if quota <= 0 || period <= 0 || quota > math.MaxInt64/milliOfCPU {
		return 0
	}
	return quota * milliOfCPU / period
}
