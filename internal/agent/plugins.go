package agent

import (
	"time"

	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/metrics"
)

// pluginsName is the file in paths.state with the allocations of resource plugins.
const pluginsName = "resourceplugins.json"

// resourcePlugins makes the manager of resource plugins; nil if none can register. It reads what an earlier
// agent saved, so that the first pod is sent to the known plugins.
func (a *Agent) resourcePlugins() facts.ResourcePlugins {
	c := a.opt.Config.ResourcePlugins
	if c.Directory == "" && len(c.Watch) == 0 {
		return nil
	}
	a.plugins = qrm.New(qrm.Options{
		Directory: c.Directory, Watch: c.Watch, Timeout: time.Duration(c.Timeout) * time.Millisecond, Names: c.Mapped(),
		Fail: c.FailurePolicy == "fail", Reconcile: time.Duration(c.Reconcile) * time.Second,
		Pod:  func() bool { return a.settings.current().TopologyManager.Scope == "pod" },
		Live: a.livePods, Changed: func(uids []string) { a.conductor.Inform(uids) },
		Saved: a.files.load(pluginsName), Save: a.files.save(pluginsName),
		Recorder: resourceRecorder{a.metrics}, Log: a.log,
	})
	return askedPlugins{a.plugins}
}

// livePods returns the UIDs of the node's pods; nil before a runtime has listed them.
func (a *Agent) livePods() map[string]bool {
	h := nodeview.HoldingsOf(a.conductor)
	if !h.Synced {
		return nil
	}
	out := make(map[string]bool, len(h.Pods))
	for i := range h.Pods {
		out[h.Pods[i].UID] = true
	}
	return out
}

// askedPlugins adapts a manager of resource plugins to the interface that the conductor takes.
type askedPlugins struct{ *qrm.Manager }

// Question returns the question about a new container; nil if there is none.
func (p askedPlugins) Question(pod *lifecycle.Pod, ctr *lifecycle.Container, spec *lifecycle.PodSpec, ahead bool) facts.Question {
	q := p.Manager.Question(pod, ctr, spec)
	switch {
	case q == nil:
		return nil
	case ahead:
		q.Ahead()
	}
	return q
}

// resourceRecorder counts calls of resource plugins in the metrics.
type resourceRecorder struct{ m *metrics.Metrics }

// Call counts one call.
func (r resourceRecorder) Call(resource, method string, result qrm.Result, took time.Duration) {
	r.m.ResourcePluginCall(resource, method, string(result), took)
}

// resourcePluginStatus returns the state of the resource plugins; nil if none can register.
func (a *Agent) resourcePluginStatus() *api.ResourcePlugins {
	if a.plugins == nil {
		return nil
	}
	plugins, refused, err := a.plugins.States()
	out := &api.ResourcePlugins{Error: err}
	for _, p := range plugins {
		out.Plugins = append(out.Plugins, api.ResourcePlugin{
			Resource: p.Resource, Socket: p.Socket, Answering: p.Answering, Hints: p.Aligned, Reconciled: p.Reconciled, PreStart: p.PreStart,
			Pods: p.Pods, PendingRemovals: p.Removals, Replaced: p.Replaced, Calls: p.Calls, Failed: p.Failed, Error: p.Err,
		})
	}
	for _, r := range refused {
		out.Refused = append(out.Refused, api.RefusedPlugin{At: r.At, Resource: r.Resource, Socket: r.Endpoint, Reason: r.Text})
	}
	return out
}
