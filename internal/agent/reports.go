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

// reports are the objects about the node that the configuration switches on.
func (a *Agent) reports(client *kube.Client) []kube.Service {
	var out []kube.Service
	if a.opt.Config.Cluster.Topology.Enabled {
		d := &deviceList{grants: a.grants, log: a.log}
		out = append(out, d, publish.New(client, a.topologyReport(d), publish.Pace{}))
	}
	return out
}

// topologyReport is the node's NodeResourceTopology.
func (a *Agent) topologyReport(d *deviceList) publish.Report {
	c := a.opt.Config.Cluster.Topology
	return publish.Report{
		Kind:     "NodeResourceTopology",
		Resource: schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"},
		Key:      "zones", Later: "attributes", Ready: a.reportable, Changed: a.changed,
		Make: func() (map[string]string, map[string]any) {
			n := a.zones()
			n.AddDevices(d.all())
			var annotations map[string]string
			if c.Koordinator {
				annotations = n.Koordinator()
			}
			return annotations, n.NRT(zones.Manager{Policy: c.Policy, Scope: c.Scope})
		},
	}
}

// zones is what the node has and what of it is free.
func (a *Agent) zones() zones.Node {
	n := nodeview.Zones(a.conductor)
	a.settings.mu.Lock()
	defer a.settings.mu.Unlock()
	n.ByKubelet = a.settings.config.Authority == "kubelet"
	return n
}

// reportable says why nothing is known yet that could be reported; nil where it is.
// Before the runtime's list is decided every CPU would look free. After a release they
// are, and that is reported.
func (a *Agent) reportable() (err error) {
	if other := a.neighbour.standby(); other != "" {
		return errors.New("standby: " + other)
	}
	a.conductor.View(func(v *nodeview.View) {
		if v.Synced.IsZero() {
			err = errors.New("what the runtime runs has not been taken over")
		}
	})
	return err
}

// changed returns a channel that is closed at the next event.
func (a *Agent) changed() <-chan struct{} {
	_, more := a.conductor.Journal().Since(math.MaxUint64)
	return more
}
