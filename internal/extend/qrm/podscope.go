package qrm

import (
	"context"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// podRequest is the request for a whole pod: with topologyManager.scope: pod, plugins that can do
// it decide once for all containers of a pod. The answer counts for each container that requests
// the resource.
func podRequest(of *api.ResourceRequest, amount float64) *api.PodResourceRequest {
	return &api.PodResourceRequest{
		PodUid: of.GetPodUid(), PodNamespace: of.GetPodNamespace(), PodName: of.GetPodName(), PodRole: of.GetPodRole(), PodType: of.GetPodType(),
		ResourceName: of.GetResourceName(), ResourceRequests: map[string]float64{of.GetResourceName(): amount}, Hint: of.GetHint(),
		Labels: of.GetLabels(), Annotations: of.GetAnnotations(),
	}
}

// ofPod returns what a pod's containers request at one time, at most: init containers run before
// the others, sidecars beside all of them.
func ofPod(spec *lifecycle.PodSpec) lifecycle.Amounts {
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

// podHints asks a plugin where a pod's resource can be had. known is false if the plugin decides by
// container.
func (q *Question) podHints(ctx context.Context, it item) (out []lifecycle.ResourceHints, problems []lifecycle.Problem, known bool) {
	if !it.p.byPod("GetPodTopologyHints") {
		return nil, nil, false
	}
	var resp api.PodResourceHintsResponse
	var raw []byte
	err := it.p.call(ctx, "GetPodTopologyHints", podRequest(it.request, it.ofPod), &resp, &raw)
	switch {
	case isUnimplemented(err):
		it.p.notByPod("GetPodTopologyHints")
		return nil, nil, false
	case resultOf(err) == Failed:
		p := failure(it.p, "GetPodTopologyHints", err, "the resource cannot be had on any NUMA node")
		return []lifecycle.ResourceHints{{Resource: it.p.resource, Hints: []lifecycle.NUMAHint{}}}, []lifecycle.Problem{p}, true
	case err != nil:
		return nil, []lifecycle.Problem{failure(it.p, "GetPodTopologyHints", err, "the resource has no hints")}, true
	}
	const resourceHints = 7 // of PodResourceHintsResponse
	out, problems = hintsFrom(it.p.resource, resp.GetResourceHints(), withoutValue(raw, resourceHints))
	return out, problems, true
}

// allocateForPod asks a plugin to allocate for a whole pod, once. known is false if the plugin
// allocates by container.
func (m *Manager) allocateForPod(ctx context.Context, p *plugin, request *api.ResourceRequest, amount float64) (answer *api.ResourceAllocation, known bool, err error) {
	if !p.byPod("AllocateForPod") {
		return nil, false, nil
	}
	var resp api.PodResourceAllocationResponse
	err = p.call(ctx, "AllocateForPod", podRequest(request, amount), &resp, nil)
	if isUnimplemented(err) {
		p.notByPod("AllocateForPod")
		return nil, false, nil
	}
	return resp.GetAllocationResult(), true, err
}

// podAnswer returns what was allocated for the pod of a request as a whole, and the request for it;
// nil if nothing was.
func (m *Manager) podAnswer(req *api.ResourceRequest) *stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return nil
	}
	for _, ctr := range sortedKeys(p.answers) {
		if s := p.answers[ctr][req.GetResourceName()]; s.ofPod > 0 && s.answer != nil {
			return &s
		}
	}
	return nil
}

// byPod reports whether a plugin may have a method for whole pods: it did not answer that it has
// not.
func (p *plugin) byPod(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.lacks[method]
}

func (p *plugin) notByPod(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lacks == nil {
		p.lacks = map[string]bool{}
	}
	p.lacks[method] = true
}
