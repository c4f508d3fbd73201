package layers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/koordinator"
	"github.com/trimtab/trimtab/internal/sleep"
)

// otherResource is a resource type whose objects configure another node agent.
type otherResource struct {
	agent    string // the agent's name in cluster.config.alsoRead
	resource schema.GroupVersionResource
	named    bool // the object for a node has the name of the node
}

// The node agents that cluster.config.alsoRead may list.
const (
	ofKoordinator = "koordinator"
	ofNRIPlugins  = "nri-plugins"
)

// topologyResource is the resource NodeResourceTopology. Trimtab reads objects of this resource, and can also write
// them.
const topologyResource = "noderesourcetopologies"

// othersOf returns the resources of the agents in alsoRead.
func othersOf(alsoRead []string) []otherResource {
	policy := schema.GroupVersionResource{Group: "config.nri", Version: "v1alpha1"}
	return slices.DeleteFunc([]otherResource{
		{ofKoordinator, schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodeslos"}, true},
		{ofKoordinator, schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: topologyResource}, true},
		{ofNRIPlugins, policy.GroupVersion().WithResource("balloonspolicies"), false},
		{ofNRIPlugins, policy.GroupVersion().WithResource("topologyawarepolicies"), false},
	}, func(o otherResource) bool { return !slices.Contains(alsoRead, o.agent) })
}

// readsAgent reports whether the watch reads the objects of an agent, that is, whether alsoRead lists the agent.
func (w *Watch) readsAgent(agent string) bool {
	return slices.ContainsFunc(w.otherResources, func(o otherResource) bool { return o.agent == agent })
}

// readOthers returns the layers from other agents' objects. It also lists the objects and settings that have no effect
// in Trimtab, and the resources that the agent may not read. The caller holds mu.
func (w *Watch) readOthers() ([]config.Layer, []string) {
	var layers []config.Layer
	var unknown []string
	add := func(l config.Layer, ok bool, missing []string) {
		if unknown = append(unknown, missing...); ok {
			layers = append(layers, l)
		}
	}
	for _, o := range w.otherResources {
		for _, object := range w.others[o.resource.Resource] {
			switch {
			case o.resource.Resource == topologyResource:
				add(koordinator.TopologyLayer(object))
			case o.agent == ofKoordinator:
				add(koordinator.NodeSLOLayer(object))
			case w.selectsNode(object):
				unknown = append(unknown, fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName()))
			}
		}
		if err := w.lastErrs[o.resource.Resource]; apierrors.IsForbidden(err) {
			unknown = append(unknown, err.Error())
		}
	}
	if w.readsAgent(ofKoordinator) {
		add(koordinator.NodeLayer(w.client.Node, w.node.GetLabels(), w.node.GetAnnotations()))
	}
	return layers, unknown
}

// selectsNode reports whether a policy object of nri-plugins is for this node. The name of such an object is node.NODE,
// or group.GROUP with the group in a label of the node. For a node without a group, the name is default (nri-plugins
// 0.13, pkg/agent).
func (w *Watch) selectsNode(policy *unstructured.Unstructured) bool {
	want := "default"
	for _, label := range []string{"resource-policy.nri.io/group", "group.config.nri", "config.nri/group"} {
		if group := w.node.GetLabels()[label]; group != "" {
			want = "group." + group
		}
	}
	return policy.GetName() == want || policy.GetName() == "node."+w.client.Node
}

// crdCheckInterval is about how often the watch checks whether a missing CRD has been installed.
const crdCheckInterval = 10 * time.Minute

// crdWatch watches a resource of a CRD as soon as the CRD exists. It checks at long intervals whether the CRD exists.
type crdWatch struct{ resourceWatch }

// Run waits until the CRD exists, and then watches the resource until ctx ends.
func (i crdWatch) Run(ctx context.Context) {
	for ctx.Err() == nil {
		one := metav1.ListOptions{Limit: 1, FieldSelector: i.selection.Fields}
		_, err := i.client.Dynamic.Resource(i.selection.Resource).List(ctx, one)
		i.mu.Lock()
		i.lastErrs[i.resource] = err
		i.mu.Unlock()
		pause := time.Minute
		switch {
		case err == nil:
			i.resourceWatch.Run(ctx)
			return
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			pause = crdCheckInterval
			i.changeAndWake(func() { i.listed[i.resource] = true })
		}
		sleep.For(ctx, pause/2+rand.N(pause))
	}
}
