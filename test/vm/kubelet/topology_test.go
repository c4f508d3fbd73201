package kubelet_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

const (
	alwaysPart = "nri/single-numa-node" // which every run plays
	// A pod of a cluster takes longer than a static one: the API server's and the kubelet's requests pass through an
	// emulated network.
	clusterPatience = 8 * time.Minute
	card, nic       = "example.com/card", "example.com/nic"
	cardNode        = "2"
	nicNode         = "3"
)

var (
	topologyAttachments = []string{"nri", "cri", "bypass"}
	topologyPolicies    = []string{"single-numa-node", "restricted", "numeric", "best-effort", "none"}
)

// asked is a pod with containers that request whole CPUs and devices.
type asked struct {
	name    string
	ctrs    []request
	refused string // the policies that do not admit it
	near    bool   // the last container is on the card's node; with scope pod the others are too, if there is a policy
}

type request struct {
	cpus      int
	card, nic bool
}

// The pods of each policy and scope. The engine's test TestAlignedPods has the same. near owns the CPUs of the card's
// node while those of besideNear are created. The first containers of later and pair fit anywhere alone.
var (
	near       = asked{name: "near", ctrs: []request{{cpus: 2, card: true}}, near: true}
	besideNear = []asked{
		{name: "full", ctrs: []request{{cpus: 1, card: true}}, refused: "single-numa-node restricted numeric"},
		{name: "apart", ctrs: []request{{cpus: 1, card: true, nic: true}}, refused: "single-numa-node restricted numeric"},
		{name: "later", ctrs: []request{{cpus: 1}, {cpus: 1, card: true, nic: true}}, refused: "single-numa-node restricted numeric"},
	}
	pair = asked{name: "pair", ctrs: []request{{cpus: 1}, {cpus: 1, card: true}}, near: true}
	wide = asked{name: "wide", ctrs: []request{{cpus: 3}}, refused: "single-numa-node restricted"}
)

// TestTopologyManager runs pods on four NUMA nodes under a kubelet without CPU and topology manager, whose device plugin
// has cards on node 2 and nics on node 3. With each policy and scope, a pod that must be refused is refused before
// anything of it runs, and its events have the reason; CPUs and devices of others are on one node. bypass cannot
// refuse: such a container owns no CPUs, and its pod has the event.
func TestTopologyManager(t *testing.T) {
	t.Parallel()
	soak := os.Getenv("TRIMTAB_SOAK") != ""
	due := map[string][]string{}
	for _, attach := range topologyAttachments {
		for _, policy := range topologyPolicies {
			if part := attach + "/" + policy; part == alwaysPart || soak || theTurns.Due(t, part) {
				due[attach] = append(due[attach], policy)
			}
		}
	}
	plane := controlplane.Start(t)
	program := buildPlugin(t)
	for i, attach := range topologyAttachments {
		if len(due[attach]) == 0 {
			continue
		}
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			n := join(t, plane, fmt.Sprintf("n%d", i+1), attach, program)
			for _, policy := range due[attach] {
				t.Run(policy, func(t *testing.T) {
					if part := attach + "/" + policy; part != alwaysPart && !soak {
						theTurns.Note(t, part)
					}
					for _, scope := range []string{"container", "pod"} {
						n.on(t).plays(policy, scope)
					}
				})
			}
		})
	}
}

// member is a node of a cluster.
type member struct {
	*node

	plane        *controlplane.Plane
	api          dynamic.Interface
	name, attach string
	granted      podresources.PodResourcesListerClient
	scope        string
	policy       string
}

// join starts a guest with agent, kubelet and device plugin. The agent starts first.
func join(t *testing.T, plane *controlplane.Plane, name, attach string, program []byte) *member {
	t.Helper()
	m := vm.Start(t, vm.Guest{Topology: vm.FourNodes, Stage: vm.Containerd})
	n := &member{
		node:  &node{t: t, m: m, patience: clusterPatience, cri: m.CRI(vm.CRISocket), a: agent.New(m), join: []string{"--hostname-override=" + name, "--kubeconfig=/etc/kubernetes/kubelet.conf"}},
		plane: plane, api: plane.Dynamic(controlplane.Admin), name: name, attach: attach,
	}
	endpoint := vm.CRISocket
	switch attach {
	case "cri":
		endpoint = proxySocket
	case "bypass":
		m.WithoutNRI()
	}
	objects.Create(t, plane, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: %[1]s}}`, attach))
	m.Put("/etc/kubernetes/kubelet.conf", 0o600, n.kubeconfig(name))
	m.Put("/etc/trimtab/kubeconfig", 0o600, n.kubeconfig(controlplane.Admin))
	m.Put("/usr/local/bin/deviceplugin", 0o755, program)
	// No part begins with this configuration, so each begins with a change, which the agent counts.
	if err := errors.Join(n.a.Configure(n.keys("none", "pod")), n.a.Run()); err != nil {
		t.Fatal(err)
	}
	m.Spawn("deviceplugin", "/usr/local/bin/deviceplugin", card+"="+cardNode, nic+"="+nicNode)
	n.configure(map[string]any{"containerRuntimeEndpoint": "unix://" + endpoint, "nodeLeaseDurationSeconds": 240})
	n.run()
	n.await("the node has its devices", n.equipped)
	n.await("the agent knows pods' specs", func() error {
		s, err := n.a.Status()
		if err != nil {
			return err
		}
		for _, p := range s.PodSpecs {
			if p.Source == "API server" && p.Up {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.PodSpecs)
	})
	conn, err := grpc.NewClient("passthrough:guest", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return m.Dial(ctx, "unix", kubeletRoot+"/pod-resources/kubelet.sock")
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n.granted = podresources.NewPodResourcesListerClient(conn)
	return n
}

// on returns the node with failures reported to a subtest.
func (n *member) on(t *testing.T) *member {
	t.Helper()
	other, inner := *n, *n.node
	inner.t, inner.m = t, n.m.For(t)
	other.node = &inner
	return &other
}

// keys are the agent's configuration.
func (n *member) keys(policy, scope string) json.RawMessage {
	text, err := json.Marshal(map[string]any{
		"attach": n.attach, "placement": map[string]any{"policy": "pools", "wholeCPUs": "guaranteed"},
		"podspec": map[string]any{"waitMilliseconds": 1000}, // an emulated machine is slow
		"cluster": map[string]any{"enabled": true, "kubeconfig": "/etc/trimtab/kubeconfig", "nodeName": n.name},
		"topologyManager": map[string]any{
			"policy": policy, "scope": scope, "refusal": "fail", "align": []string{"cpu", "memory", card},
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return text
}

// plays runs all pods with a policy and scope.
func (n *member) plays(policy, scope string) {
	n.t.Helper()
	if err := n.a.Reconfigure(n.keys(policy, scope)); err != nil {
		n.t.Fatal(err)
	}
	n.policy, n.scope = policy, scope
	begun := time.Now()
	n.emptied() // a part that failed leaves pods
	n.create(near)
	n.becomes(near)
	n.create(besideNear...)
	for _, p := range besideNear {
		n.becomes(p)
	}
	n.remove(append([]asked{near}, besideNear...)...)
	n.create(pair)
	n.becomes(pair)
	n.create(wide)
	n.becomes(wide)
	n.remove(pair, wide)
	n.t.Logf("scope %s: %.0f s", scope, time.Since(begun).Seconds())
}

// fullName is a pod's name, which no two pods of a run share: events of an earlier one do not count.
func (n *member) fullName(p asked) string {
	return strings.Join([]string{p.name, n.policy, n.scope}, "-")
}

func containerName(i int) string { return string(rune('a' + i)) }

// create creates pods on this node, without a scheduler.
func (n *member) create(pods ...asked) {
	n.t.Helper()
	for _, p := range pods {
		var ctrs []any
		for i, r := range p.ctrs {
			limits := map[string]any{"cpu": fmt.Sprint(r.cpus), "memory": "64Mi"}
			if r.card {
				limits[card] = "1"
			}
			if r.nic {
				limits[nic] = "1"
			}
			ctrs = append(ctrs, map[string]any{
				"name": containerName(i), "image": vm.Image("probe"), "imagePullPolicy": "Never", "resources": map[string]any{"limits": limits},
			})
		}
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": n.fullName(p), "namespace": n.attach},
			"spec": map[string]any{
				"nodeName": n.name, "hostNetwork": true, "terminationGracePeriodSeconds": int64(1), // a guest has no CNI
				"automountServiceAccountToken": false, "enableServiceLinks": false,
				"tolerations": []any{map[string]any{"operator": "Exists"}}, "containers": ctrs,
			},
		}}
		if _, err := n.of("Pod").Create(n.t.Context(), o, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *member) of(kind string) dynamic.ResourceInterface {
	return objects.ClientFor(n.api, kind, n.attach)
}

// becomes waits until a pod runs or was refused, as its policy says.
func (n *member) becomes(p asked) {
	n.t.Helper()
	refused := slices.Contains(strings.Fields(p.refused), n.policy)
	n.await(n.fullName(p), func() error {
		switch {
		case refused && n.attach == "bypass":
			return errors.Join(n.hasReason(p), n.ownsNothing(p))
		case refused:
			return n.isRefused(p)
		}
		return n.isAligned(p)
	})
	if refused && n.attach != "bypass" { // also after the kubelet's further attempts
		if err := n.isRefused(p); err != nil {
			n.t.Error(err)
		}
	}
}

// isRefused: the pod has the event, and its runtime never had a container of it.
func (n *member) isRefused(p asked) error {
	if err := n.hasReason(p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	answer, err := n.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": n.fullName(p), "io.kubernetes.pod.namespace": n.attach},
	}})
	if err != nil {
		return err
	}
	for _, c := range answer.Containers {
		n.t.Errorf("%s was refused, and has container %s, which is %s", n.fullName(p), c.Metadata.Name, c.State)
	}
	return nil
}

// hasReason: an event of the pod says why it is not admitted.
func (n *member) hasReason(p asked) error {
	all, err := n.of("Event").List(n.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + n.fullName(p)})
	if err != nil {
		return err
	}
	var said []string
	for _, e := range all.Items {
		text, _, _ := unstructured.NestedString(e.Object, "message")
		if strings.Contains(text, "no NUMA nodes meet the policy: ") {
			return nil
		}
		said = append(said, text)
	}
	return fmt.Errorf("no event has the reason: %q", said)
}

// found is what the agent says of each container of a pod that runs, by name.
func (n *member) found(p asked) (map[string]agent.Explanation, error) {
	told, err := n.a.Explain(n.attach, n.fullName(p), "")
	if err != nil {
		return nil, err
	}
	all := map[string]agent.Explanation{}
	for _, c := range told {
		if c.State == "running" {
			all[c.Container] = c
		}
	}
	if len(all) != len(p.ctrs) {
		return nil, fmt.Errorf("the agent has %d containers that run: %+v", len(all), told)
	}
	return all, nil
}

// ownsNothing: the pod runs, and its last container, which is not admitted, owns no CPUs.
func (n *member) ownsNothing(p asked) error {
	all, err := n.found(p)
	if err != nil {
		return err
	}
	last := all[containerName(len(p.ctrs)-1)]
	if last.Seat == "exclusive" {
		return fmt.Errorf("it owns CPUs: %+v", last)
	}
	return nil
}

// isAligned: the pod runs, its containers have the CPUs that they request, and those on one NUMA node with their
// devices that must be.
func (n *member) isAligned(p asked) error {
	if _, err := n.found(p); err != nil {
		return err
	}
	devices, err := n.deviceNodes(p)
	if err != nil {
		return err
	}
	o, err := n.of("Pod").Get(n.t.Context(), n.fullName(p), metav1.GetOptions{})
	if err != nil {
		return err
	}
	statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
	ids := map[string]string{}
	for _, s := range statuses {
		if s, is := s.(map[string]any); is {
			name, _ := s["name"].(string)
			id, _ := s["containerID"].(string)
			ids[name] = strings.TrimPrefix(id, "containerd://")
		}
	}
	for i, r := range p.ctrs {
		name := containerName(i)
		if ids[name] == "" {
			return fmt.Errorf("the kubelet has no id of container %s", name)
		}
		cpus, err := n.cpusOf(ids[name])
		if err != nil {
			return err
		}
		nodes := nodesOfCPUs(cpus)
		switch last := i == len(p.ctrs)-1; {
		case len(cpus) != r.cpus:
			return fmt.Errorf("container %s runs on CPUs %v, wanted %d", name, cpus, r.cpus)
		case p.near && (last || n.scope == "pod" && n.policy != "none") && nodes != cardNode:
			return fmt.Errorf("container %s runs on CPUs %v, wanted NUMA node %s", name, cpus, cardNode)
		case r.card && devices[name] != cardNode && !r.nic:
			return fmt.Errorf("container %s has devices of NUMA nodes %q", name, devices[name])
		}
	}
	return nil
}

// cpusOf reads the CPUs of a container from the kernel.
func (n *member) cpusOf(id string) ([]int, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	r, err := n.m.Exec(ctx, "sh", "-ec", "cat $(find "+cgroups+"/kubepods -type d -name "+id+")/cpuset.cpus")
	if err != nil || r.Code != 0 {
		return nil, fmt.Errorf("%s%s: %w", r.Stdout, r.Stderr, err)
	}
	return topology.ParseList(strings.TrimSpace(r.Stdout))
}

// nodesOfCPUs lists the NUMA nodes of vm.FourNodes, which have two CPUs each.
func nodesOfCPUs(cpus []int) string {
	var nodes []int
	for _, cpu := range cpus {
		nodes = append(nodes, cpu/2)
	}
	slices.Sort(nodes)
	return topology.FormatList(slices.Compact(nodes))
}

// deviceNodes reads the NUMA nodes of each container's devices from the kubelet.
func (n *member) deviceNodes(p asked) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	answer, err := n.granted.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	var ctrs []*podresources.ContainerResources
	for _, of := range answer.GetPodResources() {
		if of.GetNamespace() == n.attach && of.GetName() == n.fullName(p) {
			ctrs = of.GetContainers()
		}
	}
	for _, c := range ctrs {
		var nodes []int
		for _, d := range c.GetDevices() {
			for _, at := range d.GetTopology().GetNodes() {
				nodes = append(nodes, int(at.GetID()))
			}
		}
		slices.Sort(nodes)
		all[c.GetName()] = topology.FormatList(slices.Compact(nodes))
	}
	return all, nil
}

// remove deletes pods, and waits until nothing owns CPUs.
func (n *member) remove(pods ...asked) {
	n.t.Helper()
	for _, p := range pods {
		if err := n.of("Pod").Delete(n.t.Context(), n.fullName(p), metav1.DeleteOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.await("the pods end", n.isEmpty)
}

// emptied deletes all pods.
func (n *member) emptied() {
	n.t.Helper()
	if err := n.of("Pod").DeleteCollection(n.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		n.t.Fatal(err)
	}
	n.await("no pods", n.isEmpty)
}

// isEmpty: there are no pods, and nothing owns CPUs.
func (n *member) isEmpty() error {
	all, err := n.of("Pod").List(n.t.Context(), metav1.ListOptions{})
	if err == nil && len(all.Items) > 0 {
		err = fmt.Errorf("%d pods are left", len(all.Items))
	}
	if err != nil {
		return err
	}
	s, err := n.a.Status()
	if err == nil && len(s.CPUs.Grants) > 0 {
		err = fmt.Errorf("CPUs are owned: %+v", s.CPUs.Grants)
	}
	return err
}

// equipped: the Node has all devices.
func (n *member) equipped() error {
	o, err := objects.ClientFor(n.api, "Node", "").Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	has, _, _ := unstructured.NestedStringMap(o.Object, "status", "allocatable")
	if has[card] != "4" || has[nic] != "4" {
		return fmt.Errorf("the node has %v", has)
	}
	return nil
}

// kubeconfig is the file with which a guest reaches the API server as a user.
func (n *member) kubeconfig(user string) []byte {
	n.t.Helper()
	ca, err := os.ReadFile(n.plane.CA)
	if err != nil {
		n.t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x",
"clusters": [{"name": "c", "cluster": {"server": "https://%s:%d", "certificate-authority-data": %q}}],
"users": [{"name": "u", "user": {"token": %q}}],
"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}`,
		controlplane.HostAddress, n.plane.Port, base64.StdEncoding.EncodeToString(ca), user+"-token")
}

// buildPlugin builds the device plugin.
func buildPlugin(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "deviceplugin")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, "./deviceplugin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
