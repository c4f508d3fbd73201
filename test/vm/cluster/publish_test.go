package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// quick has short intervals, so that tests are fast.
var quick = publish.Pace{Spread: time.Millisecond, MinInterval: 10 * time.Millisecond, CheckInterval: 300 * time.Millisecond, Retry: 20 * time.Millisecond}

// reporter publishes a report of a node with one NUMA node, whose free CPUs a test changes.
type reporter struct {
	*publish.Publisher

	mu      sync.Mutex
	free    int64
	changed chan struct{}
	stop    func()
}

// publishes starts a report of a node as NodeResourceTopology, with the administrator's rights.
func publishes(t *testing.T, p *controlplane.Plane, node string, pace publish.Pace) *reporter {
	t.Helper()
	return start(t, p.Kubeconfig("agent-"+node, controlplane.Admin+"-token"), node, pace, publish.Report{
		Kind: "NodeResourceTopology", Resource: nrts, Key: "zones", NewerField: "attributes",
	}, func(n zones.Node) (map[string]string, map[string]any) {
		return map[string]string{"note": "ours"}, n.NRT(zones.TopologyManager{Policy: "best-effort", Scope: "container"})
	})
}

// start starts a report of a node with an encoder.
func start(t *testing.T, kubeconfig, node string, pace publish.Pace, report publish.Report, encode func(zones.Node) (map[string]string, map[string]any)) *reporter {
	t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: kubeconfig, Node: node, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r := &reporter{free: 4000, changed: make(chan struct{})}
	report.Ready = func() error { return nil }
	report.Make = func() (map[string]string, map[string]any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		z := zones.Zone{Costs: []zones.Cost{{Zone: 0, Value: 10}}, Resources: []zones.Resource{{Name: zones.CPUs, Capacity: 4000, Allocatable: 4000, Available: 4000}}}
		z.Allocate(zones.Pod{Namespace: "d", Name: "p", UID: "u"}, zones.CPUs, 4000-r.free)
		return encode(zones.Node{Zones: []zones.Zone{z}})
	}
	report.Changed = func() <-chan struct{} {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.changed
	}
	r.Publisher = publish.New(c, report, pace)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	r.stop = func() { stop(); <-ended }
	t.Cleanup(r.stop)
	return r
}

func (r *reporter) set(free int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = free
	close(r.changed)
	r.changed = make(chan struct{})
}

// shows waits until the object has a number of free CPUs.
func shows(t *testing.T, p *controlplane.Plane, node, free string) *unstructured.Unstructured {
	t.Helper()
	var o *unstructured.Unstructured
	p.Wait(fmt.Sprintf("%s has %s CPUs free", node, free), func(ctx context.Context) (err error) {
		if o, err = p.Dynamic(controlplane.Admin).Resource(nrts).Get(ctx, node, metav1.GetOptions{}); err != nil {
			return err
		}
		zone := o.Object["zones"].([]any)[0].(map[string]any)
		got := zone["resources"].([]any)[0].(map[string]any)["available"]
		if got != free {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	return o
}

// reports waits for a row of the status.
func (r *reporter) reports(t *testing.T, p *controlplane.Plane, what string) api.ClusterPart {
	t.Helper()
	var row api.ClusterPart
	p.Wait("the status has "+what, func(context.Context) error {
		if row = r.Row(); !strings.Contains(row.Text(), what) {
			return errors.New(row.Text())
		}
		return nil
	})
	return row
}

// TestPublish: the agent creates the object once its kind exists, with the Node as its owner, and updates it. Without a
// change it writes nothing.
func TestPublish(t *testing.T) {
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	r := publishes(t, p, "n1", quick)
	r.reports(t, p, "no CustomResourceDefinition noderesourcetopologies.topology.node.k8s.io")
	install(t, p, oldNRTs, "NodeResourceTopology", nrtVersion("v1alpha1", true))
	r.reports(t, p, "serves only v1alpha1, but the agent needs v1alpha2")
	remove(t, p, oldNRTs)
	install(t, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha1", false), nrtVersion("v1alpha2", true))

	o := shows(t, p, "n1", "4")
	node, err := p.Dynamic(controlplane.Admin).Resource(nodesGVR).Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != node.GetUID() || refs[0].Kind != "Node" {
		t.Errorf("it belongs to %v", refs)
	}
	r.set(1500)
	shows(t, p, "n1", "1500m")

	before := r.reports(t, p, "up to date")
	r.set(1500)
	r.reports(t, p, "up to date")
	p.Wait("the object is checked again", func(context.Context) error {
		if r.Row().Skipped < before.Skipped+3 {
			return errors.New("not yet")
		}
		return nil
	})
	if now := r.Row(); now.Written != 2 || now.Failed != 0 {
		t.Errorf("at rest: %+v", now)
	}

	r.stop()
	next := publishes(t, p, "n1", quick)
	next.set(1500)
	if row := next.reports(t, p, "up to date"); row.Written != 0 {
		t.Errorf("another start wrote: %+v", row)
	}
	shows(t, p, "n1", "1500m")
}

// TestPublishNoServer: the report is missing while the API server is stopped, and is written when it is back.
func TestPublishNoServer(t *testing.T) {
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	install(t, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha2", true))
	r := publishes(t, p, "n1", quick)
	shows(t, p, "n1", "4")
	p.StopServer()
	r.set(2000)
	r.reports(t, p, "not written")
	p.StartServer()
	shows(t, p, "n1", "2")
	r.reports(t, p, "up to date")
}

// TestPublishOthers: the agent leaves an object of another program alone until it is deleted, and keeps the fields that
// another program adds.
func TestPublishOthers(t *testing.T) {
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	makeNode(t, p, "n2")
	install(t, p, nrts, "NodeResourceTopology", nrtVersion("v1alpha1", false), nrtVersion("v1alpha2", true))
	objects := p.Dynamic(controlplane.Admin).Resource(nrts)
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": map[string]any{"name": "n1"},
		"zones": []any{map[string]any{"name": "node-0", "type": "Node", "resources": []any{map[string]any{"name": "cpu", "available": "3"}}}},
	}}
	if _, err := objects.Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "nfd-master"}); err != nil {
		t.Fatal(err)
	}
	r := publishes(t, p, "n1", quick)
	r.reports(t, p, "left to nfd-master")
	shows(t, p, "n1", "3")
	if err := objects.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shows(t, p, "n1", "4")

	// Another program takes the object over.
	takes := []byte(`[{"op":"replace","path":"/zones/0/resources/0/available","value":"2"}]`)
	if _, err := objects.Patch(t.Context(), "n1", types.JSONPatchType, takes, metav1.PatchOptions{FieldManager: "koordlet"}); err != nil {
		t.Fatal(err)
	}
	r.set(1000)
	r.reports(t, p, "left to koordlet")
	shows(t, p, "n1", "2")

	// Another program adds an annotation in the old version, which removes our attributes; the agent writes them again.
	s := publishes(t, p, "n2", quick)
	shows(t, p, "n2", "4")
	note := []byte(`{"metadata":{"annotations":{"their":"note"}}}`)
	if _, err := p.Dynamic(controlplane.Admin).Resource(oldNRTs).Patch(t.Context(), "n2", types.MergePatchType, note, metav1.PatchOptions{FieldManager: "old-tool"}); err != nil {
		t.Fatal(err)
	}
	p.Wait("the attributes are written again", func(ctx context.Context) error {
		o, err := objects.Get(ctx, "n2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s.Row().Written < 2 || o.Object["attributes"] == nil || o.GetAnnotations()["their"] != "note" {
			return fmt.Errorf("%+v, %v", s.Row(), o.Object["attributes"])
		}
		return nil
	})
	if row := s.Row(); !strings.Contains(row.Text(), "old-tool") {
		s.reports(t, p, "old-tool")
	}
}
