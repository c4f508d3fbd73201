package zones

import (
	"slices"
	"testing"
)

// TestFingerprint: the sums are those of podfingerprint v0.2.2.
func TestFingerprint(t *testing.T) {
	pods := []Pod{{Namespace: "default", Name: "a"}, {Namespace: "kube-system", Name: "kube-proxy-x7"}, {Namespace: "default", Name: "b"}}
	if a, b := Fingerprint(pods), Fingerprint([]Pod{pods[2], pods[0], pods[1]}); a != b {
		t.Errorf("the order counts: %s, %s", a, b)
	}
	if Fingerprint(pods) == Fingerprint(pods[:2]) {
		t.Error("a pod does not count")
	}
	for _, tc := range []struct {
		pods []Pod
		want string
	}{
		{nil, "pfp0v001ef46db3751d8e999"},
		{pods, "pfp0v001310d3d46249e53e2"},
	} {
		if got := Fingerprint(tc.pods); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.pods, got, tc.want)
		}
	}
}

// TestQuantity: amounts are written as Kubernetes writes them.
func TestQuantity(t *testing.T) {
	for _, tc := range []struct {
		name   string
		amount int64
		want   string
	}{{CPUs, 0, "0"}, {CPUs, 2000, "2"}, {CPUs, 1500, "1500m"}, {Memory, 1 << 30, "1073741824"}, {"vendor.com/gpu", 8, "8"}} {
		if got := quantity(tc.name, tc.amount); got != tc.want {
			t.Errorf("%d of %s: %s, want %s", tc.amount, tc.name, got, tc.want)
		}
	}
	for size, want := range map[uint64]string{64 << 10: "hugepages-64Ki", 2 << 20: "hugepages-2Mi", 1 << 30: "hugepages-1Gi", 16 << 30: "hugepages-16Gi"} {
		if got := HugePages(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}

// TestPolicies: the deprecated field has the same content as the attributes.
func TestPolicies(t *testing.T) {
	for m, want := range map[TopologyManager]string{
		{"none", "container"}: "None", {"best-effort", "container"}: "BestEffortContainerLevel", {"restricted", "pod"}: "RestrictedPodLevel",
		{"single-numa-node", "container"}: "SingleNUMANodeContainerLevel", {"single-numa-node", "pod"}: "SingleNUMANodePodLevel",
	} {
		if got := m.policyName(); got != want {
			t.Errorf("%v: %s, want %s", m, got, want)
		}
	}
}

// TestManyZones: zones for which the scheduler plugin has no room are left out, and their number is
// reported.
func TestManyZones(t *testing.T) {
	var n Node
	for id := range 66 {
		n.Zones = append(n.Zones, Zone{ID: id})
	}
	o := n.NRT(TopologyManager{Policy: "none", Scope: "container"})
	if got := len(o["zones"].([]any)); got != 64 {
		t.Errorf("%d zones", got)
	}
	a := o["attributes"].([]any)
	if last := a[len(a)-1].(map[string]any); last["name"] != "topologyManagerMaxNUMANodes" || last["value"] != "66" {
		t.Errorf("told as %v", last)
	}
}

// TestDevices: a device counts in its zones, and is free until a container has it.
func TestDevices(t *testing.T) {
	n := Node{Zones: []Zone{{ID: 0}, {ID: 2}}, Granted: map[string]map[string]Pod{"v/gpu": {"b": {UID: "u"}}, "v/nic": {"b": {UID: "u"}}}}
	n.AddDevices([]Device{{"v/gpu", "a", []int{0}}, {"v/gpu", "b", []int{0}}, {"v/nic", "n", []int{0, 2}}, {"v/kvm", "k", nil}})
	for i, want := range [][]Resource{{{"v/gpu", 2, 2, 1}, {"v/nic", 1, 1, 1}}, {{"v/nic", 1, 1, 1}}} {
		if got := n.Zones[i].Resources; !slices.Equal(got, want) {
			t.Errorf("zone %d: %v, want %v", i, got, want)
		}
	}
}
