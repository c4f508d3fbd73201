package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// twoNodes are the nodes n1 and n2, with an agent and another pod on each, and the type of reports.
const twoNodes = `
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: a}}, status: {capacity: {cpu: "4"}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {capacity: {cpu: "4"}, conditions: [{type: Ready, status: "True"}]}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: noderesourcetopologies.topology.node.k8s.io
  annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/enhancements/pull/1870"}
spec:
  group: topology.node.k8s.io
  scope: Cluster
  names: {kind: NodeResourceTopology, plural: noderesourcetopologies}
  versions:
  - {name: v1alpha2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: customnoderesources.node.katalyst.kubewharf.io}
spec:
  group: node.katalyst.kubewharf.io
  scope: Cluster
  names: {kind: CustomNodeResource, plural: customnoderesources}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodemetrics.slo.koordinator.sh}
spec:
  group: slo.koordinator.sh
  scope: Cluster
  names: {kind: NodeMetric, plural: nodemetrics}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: devices.scheduling.koordinator.sh}
spec:
  group: scheduling.koordinator.sh
  scope: Cluster
  names: {kind: Device, plural: devices}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// podOn returns a pod of a node.
func podOn(node, name, namespace, account string) string {
	return fmt.Sprintf(`
{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s, annotations: {note: mine}},
 spec: {nodeName: %s, serviceAccountName: %s, automountServiceAccountToken: false, containers: [{name: c, image: i}]}}
---
`, name, namespace, node, account)
}

// plane starts a control plane with the chart's objects and two nodes with pods.
func plane(t testing.TB) *controlplane.Plane {
	t.Helper()
	p := controlplane.Start(t)
	create(t, p, chart(t, "config.cluster.podAnnotation=true", "config.cluster.topology.katalyst=true", "config.cluster.koordinator.nodeMetric=true",
		"config.cluster.koordinator.device=true"))
	create(t, p, twoNodes)
	create(t, p, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}")
	for _, n := range []string{"n1", "n2"} {
		create(t, p, podOn(n, "agent-"+n, namespace, release)+podOn(n, "app-"+n, "default", "default"))
		create(t, p, event("of-"+n, n, "app-"+n))
		create(t, p, "{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: "+n+"}}")
		create(t, p, "{apiVersion: node.katalyst.kubewharf.io/v1alpha1, kind: CustomNodeResource, metadata: {name: "+n+"}}")
		create(t, p, "{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeMetric, metadata: {name: "+n+"}}")
		create(t, p, "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: "+n+"}}")
	}
	return p
}

// event returns an event of a node's agent about a pod.
func event(name, node, pod string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: %s, namespace: default}
involvedObject: {kind: Pod, apiVersion: v1, namespace: default, name: %s}
reason: RequestRefused
message: text
type: Warning
source: {component: trimtab, host: %s}
reportingComponent: trimtab
reportingInstance: %s
action: Decide
eventTime: null
`, name, pod, node, node)
}

// attempt is one request that an agent might try.
type attempt struct {
	what string
	try  func(context.Context, dynamic.Interface) error
	// refused is a text in the error; "" if the request succeeds.
	refused string
}

func patch(kind, namespace, name, sub, body, refused string) attempt {
	return attempt{
		what: strings.TrimSpace(fmt.Sprintf("patch %s %s %s: %s", kind, name, sub, body)), refused: refused,
		try: func(ctx context.Context, d dynamic.Interface) error {
			var below []string
			if sub != "" {
				below = []string{sub}
			}
			form := types.StrategicMergePatchType
			if slices.Contains([]string{"NodeResourceTopology", "CustomNodeResource", "NodeMetric", "Device"}, kind) { // of a CustomResourceDefinition
				form = types.MergePatchType
			}
			_, err := of(d, kind, namespace).Patch(ctx, name, form, []byte(body), metav1.PatchOptions{}, below...)
			return err
		},
	}
}

func making(t testing.TB, text, refused string) attempt {
	t.Helper()
	o := parse(t, text)[0]
	return attempt{what: "create " + o.GetKind() + " " + o.GetName(), refused: refused, try: func(ctx context.Context, d dynamic.Interface) error {
		_, err := of(d, o.GetKind(), o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
		return err
	}}
}

func reading(kind, namespace, name, refused string) attempt {
	return attempt{what: "get " + kind + " " + namespace + "/" + name, refused: refused, try: func(ctx context.Context, d dynamic.Interface) error {
		_, err := of(d, kind, namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}}
}

const (
	byRole   = "cannot"   // refused by RBAC
	own      = "own node" // refused by the policies
	ready    = `{"status":{"conditions":[{"type":"TrimtabReady","status":"True","reason":"Ready","message":"m"}]}}`
	placed   = `{"metadata":{"annotations":{"trimtab.io/placement":"{}"}}}`
	reported = `{"zones":[{"name":"node-0"}]}`
	devices  = `{"spec":{"devices":[]}}`
	measured = `{"status":{"topologyPolicy":"None"}}`
)

// attempts returns the requests of an agent with a token of node n1. name is the agent's name in messages.
func attempts(t testing.TB, name string) []attempt {
	t.Helper()
	return []attempt{
		patch("Node", "", "n1", "status", ready, ""),
		patch("Node", "", "n2", "status", ready, own),
		patch("Node", "", "n1", "status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "TrimtabReady"),
		patch("Node", "", "n1", "status", `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`, "TrimtabReady"),
		patch("Node", "", "n1", "status", `{"status":{"capacity":{"cpu":"400"}}}`, "nothing but conditions"),
		patch("Node", "", "n1", "status", `{"status":{"capacity":null}}`, "nothing but conditions"),
		patch("Node", "", "n1", "status", `{"metadata":{"labels":{"zone":"b"}}}`, "labels"),
		patch("Node", "", "n1", "status", `{"metadata":{"labels":null}}`, "labels"),
		patch("Node", "", "n1", "status", `{"metadata":{"annotations":{"a":"b"}}}`, "labels"),
		patch("Node", "", "n1", "status", `{"status":{"conditions":[{"type":"TrimtabReady","$patch":"delete"}]}}`, ""),
		patch("Node", "", "n1", "", `{"metadata":{"labels":{"zone":"b"}}}`, byRole),
		patch("Node", "", "n1", "", `{"spec":{"unschedulable":true}}`, byRole),

		patch("Pod", "default", "app-n1", "", placed, ""),
		patch("Pod", "default", "app-n2", "", placed, own),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"uid":"a pod before","annotations":{"trimtab.io/placement":"{}"}}}`, "field is immutable"),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"annotations":{"note":"yours"}}}`, "trimtab.io/placement"),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"annotations":{"note":null}}}`, "trimtab.io/placement"),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"labels":{"a":"b"}}}`, "trimtab.io/placement"),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"finalizers":["example.com/a"]}}`, "trimtab.io/placement"),
		patch("Pod", "default", "app-n1", "", `{"spec":{"containers":[{"name":"c","image":"other"}]}}`, "trimtab.io/placement"),
		patch("Pod", "default", "app-n1", "status", `{"status":{"phase":"Failed"}}`, byRole),
		patch("Pod", "default", "app-n1", "", `{"metadata":{"annotations":{"trimtab.io/placement":null}}}`, ""),

		making(t, event(name+"-own", "n1", "app-n1"), ""),
		making(t, event(name+"-other", "n2", "app-n2"), own),
		making(t, strings.ReplaceAll(event(name+"-kubelet", "n1", "app-n1"), "trimtab", "kubelet"), own),
		making(t, strings.Replace(event(name+"-host", "n1", "app-n1"), "host: n1", "host: n2", 1), own),
		making(t, strings.NewReplacer("kind: Pod", "kind: Node", "name: app-n1", "name: n2").Replace(event(name+"-node", "n1", "app-n1")), own),
		patch("Event", "default", "of-n1", "", `{"count":2}`, ""),
		patch("Event", "default", "of-n2", "", `{"count":2}`, own),
		patch("Event", "default", "of-n2", "", `{"reportingInstance":"n1"}`, own),

		patch("NodeResourceTopology", "", "n1", "", reported, ""),
		patch("NodeResourceTopology", "", "n2", "", reported, own),
		making(t, "{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: n3}}", own),

		patch("CustomNodeResource", "", "n1", "status", measured, ""),
		patch("CustomNodeResource", "", "n2", "status", measured, own),
		patch("NodeMetric", "", "n1", "status", measured, ""),
		patch("NodeMetric", "", "n2", "status", measured, own),
		making(t, "{apiVersion: slo.koordinator.sh/v1alpha1, kind: NodeMetric, metadata: {name: n3}}", own),
		patch("Device", "", "n1", "", devices, ""),
		patch("Device", "", "n2", "", devices, own),
		making(t, "{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: n3}}", own),
		patch("CustomNodeResource", "", "n2", "", `{"spec":{"taints":[]}}`, own),
		making(t, "{apiVersion: node.katalyst.kubewharf.io/v1alpha1, kind: CustomNodeResource, metadata: {name: n3}}", own),

		reading("ConfigMap", namespace, release, ""),
		reading("ConfigMap", "default", release, byRole),
		reading("Secret", namespace, release, byRole),
		making(t, podOn("n1", "more", "default", "default"), byRole),
	}
}

// TestRights: a stolen token of node n1 can change objects of n1 and none of n2, whether it is bound to a pod of the
// node or to the node. A token that is bound to neither can change nothing.
func TestRights(t *testing.T) {
	p := plane(t)
	pod, node, loose := as(t, p, token(t, p, "Pod", "agent-n1")), as(t, p, token(t, p, "Node", "n1")), as(t, p, token(t, p, "", ""))
	// The API server applies each policy some moments after its creation.
	for _, a := range []attempt{
		patch("Node", "", "n2", "status", ready, own), patch("Pod", "default", "app-n2", "", placed, own),
		patch("Event", "default", "of-n2", "", `{"count":2}`, own), patch("NodeResourceTopology", "", "n2", "", reported, own),
	} {
		p.Wait("the policy refuses to "+a.what, func(ctx context.Context) error { return a.check(ctx, pod) })
	}
	for name, d := range map[string]dynamic.Interface{"bound-to-pod": pod, "bound-to-node": node} {
		for _, a := range attempts(t, name) {
			if err := a.check(t.Context(), d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, a := range attempts(t, "loose") {
		if strings.HasPrefix(a.what, "get") {
			continue
		}
		if err := a.try(t.Context(), loose); err == nil {
			t.Errorf("a token that is bound to no node: %s: not refused", a.what)
		}
	}
	if err := patch("Node", "", "n2", "status", `{"status":{"capacity":{"cpu":"8"}}}`, "").check(t.Context(), p.Dynamic(controlplane.Admin)); err != nil {
		t.Errorf("requests of other users are refused: %v", err)
	}
}

// check makes the request and returns an error for an unexpected answer.
func (a attempt) check(ctx context.Context, d dynamic.Interface) error {
	err := a.try(ctx, d)
	switch {
	case a.refused == "" && err != nil:
		return fmt.Errorf("%s: %w", a.what, err)
	case a.refused != "" && err == nil:
		return errors.New(a.what + ": not refused")
	case a.refused != "" && !strings.Contains(err.Error(), a.refused):
		return fmt.Errorf("%s: refused without %q: %w", a.what, a.refused, err)
	}
	return nil
}
