package qrm

import (
	"context"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// podRequest makes the request for a whole pod from the request r for one of its containers. With
// topologyManager.scope: pod, plugins can decide once for all containers of a pod. The manager then uses the plugin's
// answer as the allocation of each container that requests the resource.
func podRequest(r *api.ResourceRequest, amount float64) *api.PodResourceRequest {
	return &api.PodResourceRequest{
		PodUid: r.GetPodUid(), PodNamespace: r.GetPodNamespace(), PodName: r.GetPodName(), PodRole: r.GetPodRole(), PodType: r.GetPodType(),
		ResourceName: r.GetResourceName(), ResourceRequests: map[string]float64{r.GetResourceName(): amount}, Hint: r.GetHint(),
		Labels: r.GetLabels(), Annotations: r.GetAnnotations(),
	}
}

// requestsOfPod returns the highest amounts that a pod's containers request at the same time. It assumes that init
// containers run one after the other, before all other containers.
func requestsOfPod(spec *lifecycle.PodSpec) lifecycle.Amounts {
	out, before := lifecycle.Amounts{}, lifecycle.Amounts{}
	for _, c := range spec.Containers {
		for name, n := range c.Requests {
			switch c.Kind {
			case lifecycle.App, lifecycle.Sidecar:
				out[name] += n
			case lifecycle.Init:
				before[name] = max(before[name], n)
			case lifecycle.Ephemeral:
			}
		}
	}
	for name, n := range before {
		out[name] = max(out[name], n)
	}
	return out
}

// podHints asks a plugin on which NUMA nodes the resource is available for the whole pod. known is false if the plugin
// does not implement the method, so that the caller must ask about the container.
func (q *Question) podHints(ctx context.Context, it pluginRequest) (out []lifecycle.ResourceHints, problems []lifecycle.Problem, known bool) {
	if it.plugin.lacksMethod("GetPodTopologyHints") {
		return nil, nil, false
	}
	var resp api.PodResourceHintsResponse
	var raw []byte
	err := it.plugin.call(ctx, "GetPodTopologyHints", podRequest(it.request, it.podAmount), &resp, &raw)
	switch {
	case isUnimplemented(err):
		it.plugin.markUnimplemented("GetPodTopologyHints")
		return nil, nil, false
	case resultOf(err) == Failed:
		p := callProblem(it.plugin, "GetPodTopologyHints", err, "the agent assumes that no NUMA node has the resource")
		return []lifecycle.ResourceHints{{Resource: it.plugin.resource, Hints: []lifecycle.NUMAHint{}}}, []lifecycle.Problem{p}, true
	case err != nil:
		return nil, []lifecycle.Problem{callProblem(it.plugin, "GetPodTopologyHints", err, "the agent places the pod without hints for the resource")}, true
	}
	const resourceHints = 7 // the number of this field in PodResourceHintsResponse
	out, problems = hintsFrom(it.plugin.resource, resp.GetResourceHints(), keysWithoutValue(raw, resourceHints))
	return out, problems, true
}

// allocateForPod asks a plugin to allocate a resource for a whole pod. known is false if the plugin does not implement
// the method, so that the caller must ask for the container.
func (m *Manager) allocateForPod(ctx context.Context, p *plugin, request *api.ResourceRequest, amount float64) (answer *api.ResourceAllocation, known bool, err error) {
	if p.lacksMethod("AllocateForPod") {
		return nil, false, nil
	}
	var resp api.PodResourceAllocationResponse
	err = p.call(ctx, "AllocateForPod", podRequest(request, amount), &resp, nil)
	if isUnimplemented(err) {
		p.markUnimplemented("AllocateForPod")
		return nil, false, nil
	}
	return resp.GetAllocationResult(), true, err
}

// podAnswer returns the stored allocation that the plugin made for the whole pod of a request; nil if there is none.
func (m *Manager) podAnswer(req *api.ResourceRequest) *storedAllocation {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return nil
	}
	for _, ctr := range sortedKeys(p.answers) {
		if s := p.answers[ctr][req.GetResourceName()]; s.podAmount > 0 && s.answer != nil {
			return &s
		}
	}
	return nil
}

// lacksMethod reports whether an earlier call has shown that the plugin does not implement a method.
func (p *plugin) lacksMethod(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unimplemented[method]
}

// markUnimplemented stores that a plugin does not implement an optional method.
func (p *plugin) markUnimplemented(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unimplemented == nil {
		p.unimplemented = map[string]bool{}
	}
	p.unimplemented[method] = true
}
