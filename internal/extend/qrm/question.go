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

// Keys of pods that have fields of their own in requests.
const (
	mainContainer = "kubernetes.io/main-container-name" // annotation
	podRole       = "katalyst.kubewharf.io/pod_role"    // label
	podType       = "katalyst.kubewharf.io/pod_type"    // annotation
)

// Question is one question about a new container.
type Question struct {
	m        *Manager
	items    []item
	problems []lifecycle.Problem
	// ahead: it is asked before a runtime has reported the container.
	ahead bool
}

// item is the part of a question for one plugin.
type item struct {
	p       *plugin
	request *api.ResourceRequest
	ofPod   float64 // what the whole pod requests; 0 if plugins are asked by container
}

// Question returns the question about a new container; nil if no plugin serves a resource that it
// requests.
func (m *Manager) Question(pod *lifecycle.Pod, ctr *lifecycle.Container, spec *lifecycle.PodSpec) *Question {
	plugins := m.all()
	if len(plugins) == 0 {
		return nil
	}
	of, known := spec.Container(ctr.Name)
	if !known {
		return &Question{m: m, problems: []lifecycle.Problem{{
			Hook: lifecycle.ResourcePluginName, Value: ctr.Name, Warning: true,
			Reason: "no pod spec says what the container requests (podspec)", Then: "no resource plugin is asked about it",
		}}}
	}
	q := &Question{m: m}
	amounts, all := q.amounts(of.Requests), map[string]float64{}
	if m.o.Pod != nil && m.o.Pod() {
		all = (&Question{m: m}).amounts(ofPod(spec))
	}
	for _, p := range plugins {
		if amount, requested := amounts[p.resource]; requested {
			q.items = append(q.items, item{p, requestOf(pod, spec, of, p.resource, amount), all[p.resource]})
		}
	}
	if len(q.items)+len(q.problems) == 0 {
		return nil
	}
	return q
}

// amounts returns the requested resources by the plugins' resource names, in base units: CPUs, bytes and
// pieces. If a pod requests two resources that the same plugin serves, neither counts.
func (q *Question) amounts(requests lifecycle.Amounts) map[string]float64 {
	const milli = 1000
	out := map[string]float64{}
	from := map[string]string{}
	for _, name := range sortedKeys(requests) {
		amount := float64(requests[name])
		if amount <= 0 {
			continue
		}
		served := name
		if other, mapped := q.m.o.Names[name]; mapped {
			served = other
		}
		if name == lifecycle.ResourceCPU || served == lifecycle.ResourceCPU && strings.HasSuffix(name, "_millicpu") {
			amount /= milli
		}
		if first, twice := from[served]; twice {
			q.problems = append(q.problems, lifecycle.Problem{
				Hook: lifecycle.ResourcePluginName, Key: served, Value: first + " and " + name,
				Reason: "the container requests both resources, and one plugin serves both (resourcePlugins.names)", Then: "the plugin is not asked",
			})
			delete(out, served)
			continue
		}
		from[served], out[served] = name, amount
	}
	return out
}

// requestOf makes the request for one resource in the same form as the kubelet.
func requestOf(pod *lifecycle.Pod, spec *lifecycle.PodSpec, ctr lifecycle.ContainerSpec, resource string, amount float64) *api.ResourceRequest {
	kind, index := roleOf(pod, spec, ctr)
	return &api.ResourceRequest{
		PodUid: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, ContainerName: ctr.Name, ContainerType: kind, ContainerIndex: index,
		PodRole: pod.Labels[podRole], PodType: pod.Annotations[podType], ResourceName: resource,
		ResourceRequests: map[string]float64{resource: amount}, Labels: pod.Labels, Annotations: pod.Annotations, NativeQosClass: spec.QoS,
	}
}

// roleOf returns the type of a container, and its index in its list of the pod's spec. The protocol has no
// type for init containers that run beside the others; they count as sidecars.
func roleOf(pod *lifecycle.Pod, spec *lifecycle.PodSpec, ctr lifecycle.ContainerSpec) (kind api.ContainerType, index uint64) {
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

// each calls a function for all items of a question in parallel, and waits for all.
func (q *Question) each(do func(i int, it item)) {
	var all sync.WaitGroup
	for i, it := range q.items {
		all.Go(func() { do(i, it) })
	}
	all.Wait()
}

// failure is the problem of a failed call.
func failure(p *plugin, method string, err error, then string) lifecycle.Problem {
	return lifecycle.Problem{Hook: lifecycle.ResourcePluginName, Key: p.resource, Value: method, Reason: err.Error(), Then: then, Warning: true}
}

// Hints returns the hints of the plugins: on which NUMA nodes the resources are available.
func (q *Question) Hints(ctx context.Context) (out []lifecycle.ResourceHints, problems []lifecycle.Problem) {
	problems = slices.Clone(q.problems)
	answers := make([][]lifecycle.ResourceHints, len(q.items))
	failed := make([][]lifecycle.Problem, len(q.items))
	q.each(func(i int, it item) {
		if it.p.options.aligned {
			answers[i], failed[i] = q.hintsOf(ctx, it)
		}
	})
	for i := range q.items {
		out, problems = append(out, answers[i]...), append(problems, failed[i]...)
	}
	return out, problems
}

// hintsOf asks one plugin. An existing allocation stays on its NUMA nodes. If the plugin answers with an
// error, it cannot allocate the resource; if it does not answer, there are no hints.
func (q *Question) hintsOf(ctx context.Context, it item) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	if a, known := q.m.answeredAhead(it.request); known {
		return a.hints(), nil
	}
	if h, has := q.m.allocatedHints(it); has {
		return []lifecycle.ResourceHints{h}, nil
	}
	if it.ofPod > 0 {
		if out, problems, known := q.podHints(ctx, it); known {
			return out, problems
		}
	}
	var resp api.ResourceHintsResponse
	var raw []byte
	err := it.p.call(ctx, "GetTopologyHints", it.request, &resp, &raw)
	switch {
	case resultOf(err) == Failed:
		p := failure(it.p, "GetTopologyHints", err, "no NUMA node has the resource")
		return []lifecycle.ResourceHints{{Resource: it.p.resource, Hints: []lifecycle.NUMAHint{}}}, []lifecycle.Problem{p}
	case err != nil:
		return nil, []lifecycle.Problem{failure(it.p, "GetTopologyHints", err, "the resource has no hints")}
	}
	const resourceHints = 10 // of ResourceHintsResponse
	return hintsFrom(it.p.resource, resp.GetResourceHints(), withoutValue(raw, resourceHints))
}

// maxHints limits the hints of one resource, because 64 NUMA nodes have too many sets to list.
const maxHints = 1024

// hintsFrom converts the hints of an answer. Hints of accompanying resources count like those of the
// requested one.
func hintsFrom(resource string, from map[string]*api.ListOfTopologyHints, free map[string]bool) (out []lifecycle.ResourceHints, problems []lifecycle.Problem) {
	complain := func(name, reason string) {
		problems = append(problems, lifecycle.Problem{
			Hook: lifecycle.ResourcePluginName, Key: resource, Value: short(name), Reason: reason, Then: "these hints are not used", Warning: true,
		})
	}
	if len(from) > maxPlugins {
		complain(resource, fmt.Sprintf("answers with hints of %d resources", len(from)))
		return nil, problems
	}
	for _, name := range sortedKeys(from) {
		switch list := from[name].GetHints(); {
		case free[name]:
		case !isName(name):
			complain(name, "is not the name of a resource")
		case len(list) > maxHints:
			complain(name, fmt.Sprintf("has %d hints: the agent uses at most %d", len(list), maxHints))
		default:
			out = append(out, lifecycle.ResourceHints{Resource: name, Hints: converted(list)})
			if n := len(out[len(out)-1].Hints); n < len(list) {
				complain(name, fmt.Sprintf("%d of %d hints name NUMA nodes that cannot exist", len(list)-n, len(list)))
			}
		}
	}
	return out, problems
}

// converted converts hints, and leaves out those with nodes that cannot exist.
func converted(list []*api.TopologyHint) []lifecycle.NUMAHint {
	out := []lifecycle.NUMAHint{}
	for _, h := range list {
		one := lifecycle.NUMAHint{Preferred: h.GetPreferred()}
		valid := len(h.GetNodes()) <= maxNodes
		for _, node := range h.GetNodes() {
			if valid = valid && node <= math.MaxInt32; valid {
				one.Nodes = append(one.Nodes, int(node)) //nolint:gosec // it is small
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

// maxNodes is the highest number of NUMA nodes in a hint.
const maxNodes = 1024

// Refusal says why a container cannot get a resource.
type Refusal struct {
	Resource string
	Err      error
}

// Error returns the sentence for the kubelet.
func (r *Refusal) Error() string {
	return fmt.Sprintf("resource plugin %s: %v (resourcePlugins.failurePolicy: fail)", r.Resource, r.Err)
}

// Unwrap returns the error of the call.
func (r *Refusal) Unwrap() error { return r.Err }

// Allocate allocates the resources on the chosen NUMA nodes; nil if none were chosen. If a plugin does not
// answer, its last answer for the container is used.
func (q *Question) Allocate(ctx context.Context, at *lifecycle.Affinity) (out lifecycle.HookServerAnswer, err error) {
	answers := make([]*api.ResourceAllocation, len(q.items))
	failed := make([]error, len(q.items))
	q.each(func(i int, it item) { answers[i], failed[i] = q.allocate(ctx, it, at) })
	for i, it := range q.items {
		if failed[i] != nil {
			then := "the container does not get the resource"
			if last := q.m.lastAnswer(it.request); last != nil {
				answers[i], then = last, "the agent uses the plugin's last answer for the container"
			}
			out.Problems = append(out.Problems, failure(it.p, "Allocate", failed[i], then))
			if answers[i] == nil && q.m.o.Fail && err == nil {
				err = &Refusal{it.p.resource, failed[i]}
			}
		}
		values, problems := valuesOf(it.p.resource, answers[i])
		out.Values = append(out.Values, values...)
		out.Problems = append(out.Problems, problems...)
	}
	out.Problems = lifecycle.Bound(out.Problems, lifecycle.MaxProblems)
	return out, err
}

// allocate asks one plugin, and stores its answer.
func (q *Question) allocate(ctx context.Context, it item, at *lifecycle.Affinity) (*api.ResourceAllocation, error) {
	if it.p.options.aligned && at != nil {
		h := at.Of(it.p.resource)
		it.request.Hint = &api.TopologyHint{Preferred: h.Preferred}
		for _, id := range h.Nodes {
			it.request.Hint.Nodes = append(it.request.Hint.Nodes, uint64(max(id, 0))) //nolint:gosec // an id is not negative
		}
	}
	if a, known := q.m.answeredAhead(it.request); known && !q.ahead {
		q.m.arrived(it.request)
		q.m.o.Recorder.Call(it.p.resource, "Allocate", Ahead, 0)
		return a.answer, nil
	}
	if err := q.m.keepPod(ctx, it.p.resource, it.request.GetPodUid()); err != nil {
		return nil, err
	}
	q.m.begun(it.request, q.ahead)
	if it.ofPod > 0 {
		if of := q.m.podAnswer(it.request); of != nil { // for an earlier container
			q.m.allocated(it.request, of.answer, of.ofPod, q.ahead)
			return of.answer, nil
		}
	}
	answer, ofPod, err := q.m.askFor(ctx, it.p, it.request, it.ofPod)
	if err != nil {
		return nil, err
	}
	q.m.allocated(it.request, answer, ofPod, q.ahead)
	return answer, nil
}

// askFor asks a plugin to allocate, for the whole pod if ofPod is what that requests and the plugin
// can do it. It returns the pod's amount if it did.
func (m *Manager) askFor(ctx context.Context, p *plugin, request *api.ResourceRequest, ofPod float64) (*api.ResourceAllocation, float64, error) {
	if ofPod > 0 {
		if answer, known, err := m.allocateForPod(ctx, p, request, ofPod); known {
			return answer, ofPod, err
		}
	}
	var resp api.ResourceAllocationResponse
	err := p.call(ctx, "Allocate", request, &resp, nil)
	return resp.GetAllocationResult(), 0, err
}

// PreStart notifies plugins of the start of a container: those that require it and have allocated something
// for the container.
func (m *Manager) PreStart(ctx context.Context, pod *lifecycle.Pod, ctr *lifecycle.Container) (problems []lifecycle.Problem) {
	for _, p := range m.all() {
		if !p.options.preStart || !m.has(pod.UID, ctr.Name, p.resource) {
			continue
		}
		req := &api.PreStartContainerRequest{PodUid: pod.UID, PodNamespace: pod.Namespace, PodName: pod.Name, ContainerName: ctr.Name}
		if err := p.call(ctx, "PreStartContainer", req, &api.PreStartContainerResponse{}, nil); err != nil {
			problems = append(problems, failure(p, "PreStartContainer", err, "the container starts"))
		}
	}
	return problems
}
