package agent

import (
	"errors"
	"math"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/zones"
)

// nodeReports returns the services that write objects about the node to the API server. It returns a service only for
// the objects that the configuration enables, and a service that collects data for such an object.
func (a *Agent) nodeReports(client *kube.Client) []kube.Service {
	c := a.opt.Config.Cluster.Topology
	d := &deviceList{grants: a.grants, log: a.log}
	var out []kube.Service
	if c.Enabled || c.Katalyst {
		out = append(out, d)
	}
	if c.Enabled {
		out = append(out, publish.New(client, a.topologyReport(d), publish.Pace{}))
	}
	if c.Katalyst {
		out = append(out, publish.New(client, a.katalystReport(d), publish.Pace{}))
	}
	k := a.opt.Config.Cluster.Koordinator
	if k.NodeMetric {
		m := a.newUsageMeter()
		out = append(out, m, publish.New(client, m.nodeMetric(), publish.Pace{}))
	}
	if k.Device {
		out = append(out, publish.New(client, a.newDeviceReport().report(), publish.Pace{}))
	}
	return out
}

// topologyReport returns the report for the node's NodeResourceTopology object.
func (a *Agent) topologyReport(d *deviceList) publish.Report {
	c := a.opt.Config.Cluster.Topology
	return publish.Report{
		Kind:     "NodeResourceTopology",
		Resource: schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"},
		Key:      "zones", NewerField: "attributes", Ready: a.checkReportable, Changed: a.nextEvent,
		Make: func() (map[string]string, map[string]any) {
			n := a.zones(d)
			var annotations map[string]string
			if c.Koordinator {
				annotations = n.Koordinator()
			}
			return annotations, n.NRT(zones.TopologyManager{Policy: c.Policy, Scope: c.Scope})
		},
	}
}

// katalystReport returns the report for the node's CustomNodeResource object.
func (a *Agent) katalystReport(d *deviceList) publish.Report {
	c := a.opt.Config.Cluster.Topology
	return publish.Report{
		Kind:     "CustomNodeResource",
		Resource: schema.GroupVersionResource{Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Resource: "customnoderesources"},
		Key:      "status.topologyZone", HasStatusSubresource: true, Ready: a.checkReportable, Changed: a.nextEvent,
		Make: func() (map[string]string, map[string]any) {
			return nil, a.zones(d).CNR(zones.TopologyManager{Policy: c.Policy, Scope: c.Scope})
		},
	}
}

// zones returns the node's resources and which of them are free.
func (a *Agent) zones(d *deviceList) zones.Node {
	n := nodeview.Zones(a.conductor)
	n.AddDevices(d.all())
	a.settings.mu.Lock()
	defer a.settings.mu.Unlock()
	n.ByKubelet = a.settings.config.Authority == "kubelet"
	return n
}

// checkReportable returns the reason why the agent cannot report free resources yet; nil if it can. Before the agent
// has decided about the running containers, all CPUs would seem free. After a release all CPUs are free, and the agent
// reports that.
func (a *Agent) checkReportable() (err error) {
	if other := a.otherAgent.standby(); other != "" {
		return errors.New("standby: " + other)
	}
	a.conductor.View(func(v *nodeview.View) {
		if v.Synced.IsZero() {
			err = errors.New("the runtime's containers are not known yet")
		}
	})
	return err
}

// nextEvent returns a channel that is closed at the next event.
func (a *Agent) nextEvent() <-chan struct{} {
	_, more := a.conductor.Journal().Since(math.MaxUint64)
	return more
}
