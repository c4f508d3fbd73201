package engine

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
	"github.com/trimtab/trimtab/internal/topology"
)

// withDevices is n4c16 with a device at the NUMA nodes 0 and 3.
func withDevices(t *testing.T) *topology.Machine {
	t.Helper()
	l := topology.Layout{Devices: []topology.Device{
		{Address: "0000:3b:00.0", Node: 3, Numbers: []string{"231:192"}}, {Address: "0000:17:00.0", Node: 0, Numbers: []string{"231:0"}},
	}}
	for i := range 16 {
		l.CPUs = append(l.CPUs, topology.CPU{ID: i, Core: i / 2, Node: i / 4, Package: i / 8, Die: i / 8, L3: i / 4})
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTopologyHints: a container is placed near its devices, by name, unless annotations leave these out; that counts
// after affinity, and before the size of the part.
func TestTopologyHints(t *testing.T) {
	t.Parallel()
	far, near := lifecycle.Device{Path: "/dev/mlx0", Type: "c", Major: 231, Minor: 192}, lifecycle.Device{Path: "/dev/mlx1", Type: "c", Major: 231}
	node := lifecycle.Container{Devices: []lifecycle.Device{far}}
	gpu := &lifecycle.KubeletGrants{UID: "u", Namespace: "default", Name: "p", Containers: map[string]lifecycle.DeviceGrant{"c0": {NUMA: map[string][]int{"x.com/gpu": {3}}}}}
	small, owner := treeAsk{500, 600}, whole(2)
	for _, c := range []struct {
		name        string
		asks        treeAsk
		told        lifecycle.Container
		granted     *lifecycle.KubeletGrants
		annotations map[string]string
		in, why     string
	}{
		{name: "none", asks: small, in: "NUMA node #1"},
		{name: "a device node", asks: small, told: node, in: "NUMA node #3", why: "compared with socket #1, this part is nearer to all devices of the container (0000:3b:00.0)"},
		{name: "an owner", asks: owner, told: node, in: "NUMA node #3", why: "compared with socket #1, this part is nearer to all devices of the container (0000:3b:00.0)"},
		{name: "a CDI device", asks: small, told: lifecycle.Container{CDIDevices: []string{"x/nic=0000:3b:00.0"}}, in: "NUMA node #3"},
		{name: "the kubelet's grant", asks: small, granted: gpu, in: "NUMA node #3", why: "nearer to all devices of the container (x.com/gpu)"},
		{name: "the kubelet's grant to an owner", asks: owner, granted: gpu, in: "NUMA node #3", why: "nearer to all devices of the container (x.com/gpu)"},
		{name: "two places", asks: small, told: lifecycle.Container{Devices: []lifecycle.Device{far, near}}, in: "root"},
		{name: "more than the node has", asks: whole(6), told: node, in: "socket #1"},
		{name: "no hints", asks: small, told: node, annotations: map[string]string{intent.NRIHints: "false"}, in: "NUMA node #1"},
		{name: "no hints of the kind", asks: small, told: node, annotations: map[string]string{intent.NRIHints: "pod-resources"}, in: "NUMA node #1"},
		{name: "hints of the kind", asks: small, told: node, annotations: map[string]string{intent.NRIHints + "/container.c0": "[devices]", intent.NRIHints: "none"}, in: "NUMA node #3"},
		{name: "a denied path", asks: small, told: node, annotations: map[string]string{intent.NRIDenyHints: "paths: [/dev/mlx]"}, in: "NUMA node #1"},
		{
			name: "denied and allowed", asks: small, told: lifecycle.Container{Devices: []lifecycle.Device{far, near}}, in: "NUMA node #3",
			annotations: map[string]string{intent.NRIDenyHints: `{type: glob, paths: ["/dev/mlx*"]}`, intent.NRIAllowHints + "/pod": "paths: [/dev/mlx0]"},
		},
		{name: "a denied resource", asks: small, granted: gpu, annotations: map[string]string{intent.NRIDenyHints: "paths: ['podresourceapi:x.com/']"}, in: "NUMA node #1"},
	} {
		m := withDevices(t)
		_, p := topologyAwarePolicy(t, n4c16, topologyaware.Options{})
		p.Placement = topologyaware.New(m, topologyaware.Options{UnlimitedBurstable: topologyaware.Package})
		b := treeNodeOf(t, m, p)
		pod, ctr := treePod(1, "default", c.asks.milli, c.asks.limit)
		pod.UID, pod.Name, pod.Annotations, ctr.Name = "u", "p", c.annotations, "c0"
		ctr.Devices, ctr.CDIDevices = c.told.Devices, c.told.CDIDevices
		f := Facts{}
		if c.granted != nil {
			f.Granted = map[string]*lifecycle.KubeletGrants{"u": c.granted}
		}
		b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, f))
		got := b.s.Container(ctr.ID)
		if in := partOf(&b.s.Policy, got); in != c.in || !strings.Contains(got.Assignment.Why, c.why) || len(b.s.Pod(pod.ID).Intent.Problems) > 0 {
			t.Errorf("%s: in %s because %q, want %s because %q; %v", c.name, in, got.Assignment.Why, c.in, c.why, b.s.Pod(pod.ID).Intent.Problems)
		}
	}
}
