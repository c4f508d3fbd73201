package qrm

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Keys of a pod's labels and annotations whose values are copied into requests to plugins.
const (
	mainContainer = "kubernetes.io/main-container-name" // annotation; selects the container with the type MAIN
	podRole       = "katalyst.kubewharf.io/pod_role"    // label
	podType       = "katalyst.kubewharf.io/pod_type"    // annotation
)

// Question has the requests to plugins about a new container. It has one request to each plugin that serves a resource
// of the container's requests.
type Question struct {
	manager        *Manager
	pluginRequests []pluginRequest
	problems       []lifecycle.Problem
	// associations are the associated devices, which plugins choose in addition to their own resources.
	associations []*association
	pod          *lifecycle.Pod
	container    string
	// beforeCreation means that the agent asks the question before the runtime reports the container.
	beforeCreation bool
}

// pluginRequest is the part of a question for one plugin.
type pluginRequest struct {
	plugin    *plugin
	request   *api.ResourceRequest
	podAmount float64 // the amount that the whole pod requests; 0 if plugins decide for each container separately
}

// Question returns the question about a new container. It returns nil if the container requests no resource that a
// plugin serves, and no associated device of a plugin. If the agent does not know the container's requests, the
// question has no request to a plugin, but a problem.
func (m *Manager) Question(pod *lifecycle.Pod, ctr *lifecycle.Container, spec *lifecycle.PodSpec) *Question {
	plugins := m.sortedPlugins()
	if len(plugins) == 0 {
		return nil
	}
	container, known := spec.Container(ctr.Name)
	if !known {
		return &Question{manager: m, problems: []lifecycle.Problem{{
			Hook: lifecycle.ResourcePluginName, Value: ctr.Name, Warning: true,
			Reason: "the agent does not know the pod's spec (podspec), which has the requests of the container", Then: "the agent does not ask resource plugins about the container",
		}}}
	}
	q := &Question{manager: m, pod: pod, container: ctr.Name}
	amounts, all := q.requestedAmounts(container.Requests), map[string]float64{}
	if m.opts.PodScope != nil && m.opts.PodScope() {
		all = (&Question{manager: m}).requestedAmounts(requestsOfPod(spec))
	}
	for _, p := range plugins {
		amount, requested := amounts[p.resource]
		if !requested && len(p.options.associatedDevices) == 0 {
			continue
		}
		request := requestOf(pod, spec, container, p.resource, amount)
		if requested {
			q.pluginRequests = append(q.pluginRequests, pluginRequest{p, request, all[p.resource]})
		}
		q.addAssociations(p, request, container.Requests)
	}
	if len(q.pluginRequests)+len(q.problems)+len(q.associations) == 0 {
		return nil
	}
	return q
}

// requestedAmounts returns the requested amounts by the plugins' resource names, in base units: CPUs, bytes or a number
// of devices. If a container requests two resources that the same plugin serves, requestedAmounts adds a problem to q
// and leaves out both resources.
func (q *Question) requestedAmounts(requests lifecycle.Amounts) map[string]float64 {
	const milli = 1000
	out := map[string]float64{}
	from := map[string]string{}
	for _, name := range sortedKeys(requests) {
		amount := float64(requests[name])
		if amount <= 0 {
			continue
		}
		served := name
		if other, mapped := q.manager.opts.ResourceNames[name]; mapped {
			served = other
		}
		if name == lifecycle.ResourceCPU || served == lifecycle.ResourceCPU && strings.HasSuffix(name, "_millicpu") {
			amount /= milli
		}
		if first, twice := from[served]; twice {
			q.problems = append(q.problems, lifecycle.Problem{
				Hook: lifecycle.ResourcePluginName, Key: served, Value: first + " and " + name,
				Reason: "the container requests both resources, and one plugin serves both (resourcePlugins.names)", Then: "the agent does not ask the plugin",
			})
			delete(out, served)
			continue
		}
		from[served], out[served] = name, amount
	}
	return out
}

// requestOf returns the request for one resource, with the same fields as the requests of Katalyst's kubelet.
func requestOf(pod *lifecycle.Pod, spec *lifecycle.PodSpec, ctr lifecycle.ContainerSpec, resource string, amount float64) *api.ResourceRequest {
	kind, index := containerTypeAndIndex(pod, spec, ctr)
	return &api.ResourceRequest{
		PodUid: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, ContainerName: ctr.Name, ContainerType: kind, ContainerIndex: index,
		PodRole: pod.Labels[podRole], PodType: pod.Annotations[podType], ResourceName: resource,
		ResourceRequests: map[string]float64{resource: amount}, Labels: pod.Labels, Annotations: pod.Annotations, NativeQosClass: spec.QoS,
	}
}

// containerTypeAndIndex returns the type of a container. It also returns the container's index in initContainers,
// containers or ephemeralContainers of the pod's spec. The protocol has no type for init containers with restartPolicy
// Always, so they have the type SIDECAR.
func containerTypeAndIndex(pod *lifecycle.Pod, spec *lifecycle.PodSpec, ctr lifecycle.ContainerSpec) (kind api.ContainerType, index uint64) {
	first := ""
	for _, c := range spec.Containers {
		starts := c.Kind == lifecycle.Init || c.Kind == lifecycle.Sidecar
		same := starts == (ctr.Kind == lifecycle.Init || ctr.Kind == lifecycle.Sidecar) && (c.Kind == lifecycle.Ephemeral) == (ctr.Kind == lifecycle.Ephemeral)
		if c.Kind == lifecycle.App && first == "" {
			first = c.Name
		}
		if c.Name == ctr.Name {
			break
		}
		if same {
			index++
		}
	}
	if name := pod.Annotations[mainContainer]; name != "" {
		first = name
	}
	switch {
	case ctr.Kind == lifecycle.Init:
		return api.ContainerType_INIT, index
	case ctr.Kind == lifecycle.Ephemeral:
		return api.ContainerType_EPHEMERAL, index
	case ctr.Kind == lifecycle.App && ctr.Name == first:
		return api.ContainerType_MAIN, index
	}
	return api.ContainerType_SIDECAR, index
}

// forEachRequest calls a function for all pluginRequests of a question in parallel, and waits for all calls.
func (q *Question) forEachRequest(do func(i int, it pluginRequest)) {
	var all sync.WaitGroup
	for i, it := range q.pluginRequests {
		all.Go(func() { do(i, it) })
	}
	all.Wait()
}

// callProblem returns the problem for a failed call. then says what the agent does after the failure.
func callProblem(p *plugin, method string, err error, then string) lifecycle.Problem {
	return lifecycle.Problem{Hook: lifecycle.ResourcePluginName, Key: p.resource, Value: method, Reason: err.Error(), Then: then, Warning: true}
}

// Hints asks plugins for hints. A hint is a set of NUMA nodes on which a resource is available.
func (q *Question) Hints(ctx context.Context) (out []lifecycle.ResourceHints, problems []lifecycle.Problem) {
	problems = slices.Clone(q.problems)
	answers := make([][]lifecycle.ResourceHints, len(q.pluginRequests))
	failed := make([][]lifecycle.Problem, len(q.pluginRequests))
	q.forEachRequest(func(i int, it pluginRequest) {
		if it.plugin.options.topologyAligned {
			answers[i], failed[i] = q.hintsOf(ctx, it)
		}
	})
	for i := range q.pluginRequests {
		out, problems = append(out, answers[i]...), append(problems, failed[i]...)
	}
	more, failures := q.deviceHints(ctx)
	return append(out, more...), append(problems, failures...)
}

// hintsOf returns one plugin's hints. If the container already has an allocation, hintsOf returns the hints of this
// allocation, so that the container keeps its NUMA nodes. If the plugin answers with an error, the list of hints is
// empty: no NUMA node has the resource. If the plugin does not answer, hintsOf returns nil, and every node is possible.
func (q *Question) hintsOf(ctx context.Context, it pluginRequest) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	if a, known := q.manager.answerBeforeCreation(it.request); known {
		return a.hints(), nil
	}
	if h, has := q.manager.allocatedHints(it); has {
		return []lifecycle.ResourceHints{h}, nil
	}
	if it.podAmount > 0 {
		if out, problems, known := q.podHints(ctx, it); known {
			return out, problems
		}
	}
	var resp api.ResourceHintsResponse
	var raw []byte
	err := it.plugin.call(ctx, "GetTopologyHints", it.request, &resp, &raw)
	switch {
	case resultOf(err) == Failed:
		p := callProblem(it.plugin, "GetTopologyHints", err, "the agent assumes that no NUMA node has the resource")
		return []lifecycle.ResourceHints{{Resource: it.plugin.resource, Hints: []lifecycle.NUMAHint{}}}, []lifecycle.Problem{p}
	case err != nil:
		return nil, []lifecycle.Problem{callProblem(it.plugin, "GetTopologyHints", err, "the agent places the container without hints for the resource")}
	}
	const resourceHints = 10 // the number of this field in ResourceHintsResponse
	return hintsFrom(it.plugin.resource, resp.GetResourceHints(), keysWithoutValue(raw, resourceHints))
}

// maxHints limits the hints of one resource. No plugin can send a hint for each of the 2^64 sets of 64 NUMA nodes.
const maxHints = 1024

// hintsFrom converts the hints in a plugin's answer. An answer may have hints for several resources. noPreference has
// the resources for which the plugin has no preference: hintsFrom returns no hints for them.
func hintsFrom(resource string, from map[string]*api.ListOfTopologyHints, noPreference map[string]bool) (out []lifecycle.ResourceHints, problems []lifecycle.Problem) {
	complain := func(name, reason string) {
		problems = append(problems, lifecycle.Problem{
			Hook: lifecycle.ResourcePluginName, Key: resource, Value: shorten(name), Reason: reason, Then: "the agent ignores these hints", Warning: true,
		})
	}
	if len(from) > maxPlugins {
		complain(resource, fmt.Sprintf("has hints of %d resources; the agent accepts at most %d", len(from), maxPlugins))
		return nil, problems
	}
	for _, name := range sortedKeys(from) {
		switch list := from[name].GetHints(); {
		case noPreference[name]:
		case !isResourceName(name):
			complain(name, "is not the name of a resource")
		case len(list) > maxHints:
			complain(name, fmt.Sprintf("has %d hints: the agent uses at most %d", len(list), maxHints))
		default:
			out = append(out, lifecycle.ResourceHints{Resource: name, Hints: convertHints(list)})
			if n := len(out[len(out)-1].Hints); n < len(list) {
				complain(name, fmt.Sprintf("%d of %d hints name NUMA nodes that cannot exist", len(list)-n, len(list)))
			}
		}
	}
	return out, problems
}

// convertHints converts hints. It leaves out hints with nodes that cannot exist.
func convertHints(list []*api.TopologyHint) []lifecycle.NUMAHint {
	out := []lifecycle.NUMAHint{}
	for _, h := range list {
		one := lifecycle.NUMAHint{Preferred: h.GetPreferred()}
		valid := len(h.GetNodes()) <= maxNodes
		for _, node := range h.GetNodes() {
			if valid = valid && node <= math.MaxInt32; valid {
				one.Nodes = append(one.Nodes, int(node)) //nolint:gosec // at most MaxInt32
			}
		}
		if valid {
			slices.Sort(one.Nodes)
			one.Nodes = slices.Compact(one.Nodes)
			out = append(out, one)
		}
	}
	return out
}

// maxNodes limits the number of NUMA nodes in a hint or an amount. In an amount, it also limits the ids of NUMA nodes.
const maxNodes = 1024

// Refusal is the error for a container that is refused because it cannot get a resource.
type Refusal struct {
	Resource string
	Err      error
}

// Error returns the message for the kubelet.
func (r *Refusal) Error() string {
	return fmt.Sprintf("resource plugin %s: %v (resourcePlugins.failurePolicy: fail)", r.Resource, r.Err)
}

// Unwrap returns the error of the call.
func (r *Refusal) Unwrap() error { return r.Err }

// Allocate asks plugins to allocate the resources. affinity has the NUMA nodes that the agent chose; nil if it chose
// none. If a call fails, Allocate uses the plugin's last answer for the container.
func (q *Question) Allocate(ctx context.Context, affinity *lifecycle.Affinity) (out lifecycle.HookServerAnswer, err error) {
	answers := make([]*api.ResourceAllocation, len(q.pluginRequests))
	failed := make([]error, len(q.pluginRequests))
	q.forEachRequest(func(i int, it pluginRequest) { answers[i], failed[i] = q.allocate(ctx, it, affinity) })
	for i, it := range q.pluginRequests {
		if failed[i] != nil {
			then := "the container does not get the resource"
			if last := q.manager.lastAnswer(it.request); last != nil {
				answers[i], then = last, "the agent uses the plugin's last answer for the container"
			}
			out.Problems = append(out.Problems, callProblem(it.plugin, "Allocate", failed[i], then))
			if answers[i] == nil && q.manager.opts.FailClosed && err == nil {
				err = &Refusal{it.plugin.resource, failed[i]}
			}
		}
		values, problems := valuesOf(q.manager.opts.DevDirectory, it.plugin.resource, answers[i])
		out.Values = append(out.Values, values...)
		out.Problems = append(out.Problems, problems...)
	}
	out.Problems = append(out.Problems, q.allocateDevices(ctx, affinity)...)
	out.Problems = lifecycle.LimitProblems(out.Problems, lifecycle.MaxProblems)
	return out, err
}

// allocate asks one plugin to allocate its resource, and stores the answer.
func (q *Question) allocate(ctx context.Context, it pluginRequest, at *lifecycle.Affinity) (*api.ResourceAllocation, error) {
	if it.plugin.options.topologyAligned && at != nil {
		h := at.HintFor(it.plugin.resource)
		it.request.Hint = &api.TopologyHint{Preferred: h.Preferred}
		for _, id := range h.Nodes {
			it.request.Hint.Nodes = append(it.request.Hint.Nodes, uint64(max(id, 0))) //nolint:gosec // an id is not negative
		}
	}
	if a, known := q.manager.answerBeforeCreation(it.request); known && !q.beforeCreation {
		q.manager.noteCreated(it.request)
		q.manager.opts.Recorder.CountCall(it.plugin.resource, "Allocate", AnsweredBefore, 0)
		return a.answer, nil
	}
	if err := q.manager.cancelRelease(ctx, it.plugin.resource, it.request.GetPodUid()); err != nil {
		return nil, err
	}
	q.manager.noteAsked(it.request, q.beforeCreation)
	if it.podAmount > 0 {
		if answered := q.manager.podAnswer(it.request); answered != nil { // the plugin has already allocated for the whole pod
			q.manager.storeAnswer(it.request, answered.answer, answered.podAmount, q.beforeCreation)
			return answered.answer, nil
		}
	}
	answer, podAmount, err := q.manager.requestAllocation(ctx, it.plugin, it.request, it.podAmount)
	if err != nil {
		return nil, err
	}
	q.manager.storeAnswer(it.request, answer, podAmount, q.beforeCreation)
	return answer, nil
}

// requestAllocation asks a plugin to allocate a resource. If podAmount is not 0 and the plugin implements
// AllocateForPod, requestAllocation asks for the whole pod, and the returned amount is podAmount. Otherwise it asks for
// the container, and the returned amount is 0.
func (m *Manager) requestAllocation(ctx context.Context, p *plugin, request *api.ResourceRequest, podAmount float64) (*api.ResourceAllocation, float64, error) {
	if podAmount > 0 {
		if answer, known, err := m.allocateForPod(ctx, p, request, podAmount); known {
			return answer, podAmount, err
		}
	}
	var resp api.ResourceAllocationResponse
	err := p.call(ctx, "Allocate", request, &resp, nil)
	return resp.GetAllocationResult(), 0, err
}

// PreStart calls PreStartContainer of plugins before a container starts. It calls only plugins with the option
// preStartRequired that have an allocation for the container.
func (m *Manager) PreStart(ctx context.Context, pod *lifecycle.Pod, ctr *lifecycle.Container) (problems []lifecycle.Problem) {
	for _, p := range m.sortedPlugins() {
		if !p.options.preStartRequired || !m.hasAllocation(pod.UID, ctr.Name, p.resource) {
			continue
		}
		req := &api.PreStartContainerRequest{PodUid: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, ContainerName: ctr.Name}
		if err := p.call(ctx, "PreStartContainer", req, &api.PreStartContainerResponse{}, nil); err != nil {
			problems = append(problems, callProblem(p, "PreStartContainer", err, "the container starts"))
		}
	}
	return problems
}
