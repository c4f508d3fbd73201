package agent

import (
	"context"
	"time"

	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/metrics"
)

// pluginsFile is the file in paths.state with the allocations of resource plugins.
const pluginsFile = "resourceplugins.json"

// newResourcePlugins makes the manager of resource plugins; nil if none can register. The manager reads the saved
// plugins, so that they are known when the first pod is created.
func (a *Agent) newResourcePlugins() facts.ResourcePlugins {
	c := a.opt.Config.ResourcePlugins
	if c.Directory == "" && len(c.Watch) == 0 {
		return nil
	}
	a.resourcePlugins = qrm.New(qrm.Options{
		Directory: c.Directory, WatchDirectories: c.Watch, DevDirectory: a.opt.Config.Paths.Dev, Timeout: c.Timeout.Duration(), ResourceNames: c.NameMap(),
		FailClosed: c.FailurePolicy == "fail", ReconcileInterval: c.Reconcile.Duration(),
		PodScope: func() bool { return a.settings.current().TopologyManager.Scope == "pod" },
		LivePods: a.livePods, AllocationsChanged: func(uids []string) { a.conductor.Inform(uids) },
		NodeDevices: a.kubeletDevices, AssignedDevices: a.assignedDevices,
		ReadReports: a.opt.Config.PodResources.Socket != "",
		SavedState:  a.files.load(pluginsFile), SaveState: a.files.save(pluginsFile),
		Recorder: resourceRecorder{a.metrics}, Log: a.log,
	})
	return pluginManager{a.resourcePlugins}
}

// kubeletDevices returns all devices that the kubelet can assign, including those that it has assigned already. Without
// a connection to the kubelet, kubeletDevices returns an error. The manager of resource plugins then keeps the devices
// that it knows.
func (a *Agent) kubeletDevices(ctx context.Context) ([]lifecycle.KubeletDevice, error) {
	return a.grants.Devices(ctx)
}

// assignedDevices returns the ids of the devices that the kubelet assigned to a container, by resource. It waits until
// they are known or ctx ends.
func (a *Agent) assignedDevices(ctx context.Context, pod *lifecycle.Pod, container string) map[string][]string {
	a.grants.Await(ctx, pod)
	return a.grants.Known(pod.UID).DevicesOf(container).IDs
}

// livePods returns the UIDs of the node's pods; nil before a runtime has listed them.
func (a *Agent) livePods() map[string]bool {
	h := nodeview.HoldingsOf(a.conductor, nil)
	if !h.Synced {
		return nil
	}
	out := make(map[string]bool, len(h.Pods))
	for i := range h.Pods {
		out[h.Pods[i].UID] = true
	}
	return out
}

// pluginManager adapts qrm.Manager to the interface facts.ResourcePlugins.
type pluginManager struct{ *qrm.Manager }

// Question returns the request that the agent must send to the plugins about a new container; nil if no plugin needs a
// request. If ahead is true, the agent decides about the container before the container is created.
func (p pluginManager) Question(pod *lifecycle.Pod, ctr *lifecycle.Container, spec *lifecycle.PodSpec, ahead bool) facts.Question {
	q := p.Manager.Question(pod, ctr, spec)
	switch {
	case q == nil:
		return nil
	case ahead:
		q.MarkBeforeCreation()
	}
	return q
}

// resourceRecorder counts calls to resource plugins in the metrics.
type resourceRecorder struct{ m *metrics.Metrics }

// CountCall counts one call.
func (r resourceRecorder) CountCall(resource, method string, result qrm.Result, took time.Duration) {
	r.m.ResourcePluginCall(resource, method, string(result), took)
}

// resourcePluginStatus returns the state of the resource plugins; nil if none can register.
func (a *Agent) resourcePluginStatus() *api.ResourcePlugins {
	if a.resourcePlugins == nil {
		return nil
	}
	plugins, refused, err := a.resourcePlugins.States()
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
