package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// crowd has the nodes of a cluster, and simulates all clients of the API server except the agents.
type crowd struct {
	b      testing.TB
	plane  *controlplane.Plane
	admin  dynamic.Interface
	others *meter // the requests of admin
	ours   *meter // the requests of all agents
	agents []*agent
	pods   []*lifecycle.Pod // the newest pod of each node; nil for none
}

const topologies = `
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
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}
`

// gather starts a control plane with the chart's roles and policies, and makes nodes with agents that have not started.
func gather(b testing.TB, nodes int) *crowd {
	b.Helper()
	c := &crowd{b: b, plane: controlplane.Start(b), others: newMeter(), ours: newMeter(), pods: make([]*lifecycle.Pod, nodes)}
	config := c.plane.Config(controlplane.Admin)
	config.Dial = c.others.dial
	config.WrapTransport = func(to http.RoundTripper) http.RoundTripper { return counted{c.others, to} }
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	c.admin = admin
	objects.Create(b, c.plane, objects.Chart(b))
	objects.Create(b, c.plane, topologies)
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		if _, err := objects.ClientFor(admin, "Node", "").Create(b.Context(), nodeObject(name), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		node, tree := newNode(b)
		c.agents = append(c.agents, &agent{
			b: b, name: name, node: node, tree: tree, counts: c.ours, file: c.plane.Kubeconfig(name, objects.Token(b, c.plane, "Node", name)),
		})
	}
	return c
}

// nodeObject returns a Node of the size that kubelets make, with the names of fifty images.
func nodeObject(name string) *unstructured.Unstructured {
	var images []any
	for i := range 50 {
		image := fmt.Sprintf("registry.example.com/team-%d/service-%d", i%7, i)
		images = append(images, map[string]any{
			"names":     []any{image + "@sha256:" + strings.Repeat(fmt.Sprintf("%02x", i), 32), image + fmt.Sprintf(":v1.%d.0", i)},
			"sizeBytes": int64(i) << 20,
		})
	}
	amounts := map[string]any{"cpu": "16", "memory": "65536000Ki", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0", "hugepages-1Gi": "0"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": map[string]any{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "a",
			"topology.kubernetes.io/region": "r", "node.kubernetes.io/instance-type": "large",
		}},
		"status": map[string]any{
			"capacity": amounts, "allocatable": amounts, "images": images, "conditions": kubeletConditions(time.Now()),
			"addresses": []any{map[string]any{"type": "Hostname", "address": name}},
			"nodeInfo": map[string]any{
				"machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "6.12", "osImage": "Debian", "containerRuntimeVersion": "containerd://2.2",
				"kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
			},
		},
	}}
}

func kubeletConditions(now time.Time) (out []any) {
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		out = append(out, map[string]any{
			"type": kind, "status": map[bool]string{true: "True", false: "False"}[kind == "Ready"], "reason": "Kubelet", "message": "kubelet is posting ready status",
			"lastHeartbeatTime": now.UTC().Format(time.RFC3339), "lastTransitionTime": "2026-11-01T00:00:00Z",
		})
	}
	return out
}

// heartbeat is how often a kubelet writes its node's status without a change.
const heartbeat = 5 * time.Minute

// live simulates kubelets until ctx ends: they write their nodes' status and, this many times per minute
// and node, replace a pod by a new one.
func (c *crowd) live(ctx context.Context, podsPerMinute float64) {
	var running sync.WaitGroup
	n := len(c.agents)
	c.every(ctx, &running, heartbeat/time.Duration(n), func(i int) error {
		body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": kubeletConditions(time.Now())}})
		if err != nil {
			return err
		}
		_, err = objects.ClientFor(c.admin, "Node", "").Patch(ctx, c.agents[i].name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		return err
	})
	if podsPerMinute > 0 {
		c.every(ctx, &running, time.Duration(float64(time.Minute)/podsPerMinute/2)/time.Duration(n), func(i int) error {
			// Each pod ends half of the interval after its start, so that both change the free resources.
			if c.pods[i] != nil {
				return c.remove(ctx, i)
			}
			return c.create(ctx, i)
		})
	}
	<-ctx.Done()
	running.Wait()
}

// every calls what for each node in turn, at intervals of pace; the calls for one node do not overlap.
func (c *crowd) every(ctx context.Context, running *sync.WaitGroup, pace time.Duration, what func(node int) error) {
	const workers = 16
	var turns [workers]chan int
	for w := range turns {
		turns[w] = make(chan int, 64)
		running.Go(func() {
			for i := range turns[w] {
				if err := what(i); err != nil && ctx.Err() == nil {
					c.b.Errorf("%s: %v", c.agents[i].name, err)
				}
			}
		})
	}
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		defer func() {
			for _, t := range turns {
				close(t)
			}
		}()
		for i := 0; ; i = (i + 1) % len(c.agents) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case turns[i%workers] <- i:
			case <-ctx.Done():
				return
			}
		}
	})
}

// create makes a pod on a node, and does what its kubelet does: the sandbox, the container, and two writes
// of the status. Every tenth pod has a malformed annotation.
func (c *crowd) create(ctx context.Context, i int) error {
	annotations := map[string]any{intent.KoordResourceStatus: fmt.Sprintf(`{"cpuset":"%d"}`, i%8)}
	if i%10 == 0 {
		annotations["node.koordinator.sh/extended-resource-spec"] = "{"
	}
	name := fmt.Sprintf("web-%d-%d", i, time.Now().UnixNano())
	made, err := c.podsOf().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "annotations": annotations, "labels": map[string]any{intent.KoordQoSClass: "LSR", "app": "web", "pod-template-hash": "5d89bdfbf9"}},
		"spec": map[string]any{
			"nodeName": c.agents[i].name, "automountServiceAccountToken": false,
			"containers": []any{map[string]any{
				"name": "app", "image": "registry.example.com/team/web:v1.2.3", "args": []any{"--listen=:8080", "--log=info"},
				"env":       []any{map[string]any{"name": "REGION", "value": "r"}},
				"resources": map[string]any{"requests": map[string]any{"cpu": "1", "memory": "1Gi"}, "limits": map[string]any{"cpu": "1", "memory": "1Gi"}},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.pods[i] = podOf(name, string(made.GetUID()), made.GetAnnotations())
	if err := c.status(ctx, name, "Pending", false); err != nil {
		return err
	}
	if err := c.agents[i].begin(ctx, c.pods[i]); err != nil {
		return err
	}
	return c.status(ctx, name, "Running", true)
}

// reasons returns the number of events of each reason.
func (c *crowd) reasons() map[string]int {
	c.b.Helper()
	l, err := objects.ClientFor(c.admin, "Event", "").List(c.b.Context(), metav1.ListOptions{})
	if err != nil {
		c.b.Fatal(err)
	}
	out := map[string]int{}
	for i := range l.Items {
		reason, _, _ := unstructured.NestedString(l.Items[i].Object, "reason")
		out[reason]++
	}
	return out
}

// remove deletes the pod of a node, and does what its kubelet does at its end.
func (c *crowd) remove(ctx context.Context, i int) error {
	p := c.pods[i]
	if p == nil {
		return nil
	}
	if err := c.podsOf().Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := c.agents[i].end(ctx, p); err != nil {
		return err
	}
	c.pods[i] = nil
	if err := c.status(ctx, p.Name, "Succeeded", false); err != nil {
		return err
	}
	now := int64(0)
	return c.podsOf().Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

func (c *crowd) podsOf() dynamic.ResourceInterface {
	return objects.ClientFor(c.admin, "Pod", "default")
}

func (c *crowd) status(ctx context.Context, pod, phase string, ready bool) error {
	word := map[bool]string{true: "True", false: "False"}[ready]
	var conditions []any
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": word, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)})
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": phase, "conditions": conditions, "podIP": "10.1.0.5", "hostIP": "192.168.0.5", "containerStatuses": []any{map[string]any{
			"name": "app", "image": "registry.example.com/team/web:v1.2.3", "imageID": "registry.example.com/team/web@sha256:" + strings.Repeat("ab", 32),
			"containerID": "containerd://" + strings.Repeat("cd", 32), "ready": ready, "restartCount": int64(0),
		}},
	}})
	if err != nil {
		return err
	}
	_, err = c.podsOf().Patch(ctx, pod, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
