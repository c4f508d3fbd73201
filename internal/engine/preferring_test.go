package engine

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// hybrid is a machine of two NUMA nodes with eight CPUs each: two isolated ones, two on efficient cores and
// four others. It has a device at each node, and one whose node the firmware does not report.
func hybrid(t *testing.T) *topology.Machine {
	t.Helper()
	l := topology.Layout{Devices: []topology.Device{
		{Address: "0000:3b:00.0", Node: 1, Numbers: []string{"231:192"}}, {Address: "0000:17:00.0", Node: 0}, {Address: "0000:01:00.0", Node: -1},
	}}
	for i := range 16 {
		c := topology.CPU{ID: i, Core: i, Node: i / 8, Isolated: i%8 == 6 || i%8 == 7, Kind: topology.PerformanceCore}
		if i%8 == 4 || i%8 == 5 {
			c.Kind = topology.EfficiencyCore
		}
		l.CPUs = append(l.CPUs, c)
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPreferences: devices, cores and isolated CPUs influence which CPUs an owner gets, by name, and never
// whether it gets any.
func TestPreferences(t *testing.T) {
	t.Parallel()
	const dedicated, bound = "dedicated_cores", `{"numa_binding":"true"}`
	grant := func(g lifecycle.DeviceGrant) *lifecycle.KubeletGrants {
		return &lifecycle.KubeletGrants{UID: "u", Namespace: "default", Name: "p", Containers: map[string]lifecycle.DeviceGrant{"main": g}}
	}
	for _, c := range []struct {
		name        string
		n           int
		annotations map[string]string
		granted     *lifecycle.KubeletGrants
		told        lifecycle.Container
		change      func(*pools.Policy)
		cpus, why   string
	}{
		{name: "nothing is known", n: 2, cpus: "0-1", why: "away from isolated CPUs"},
		{
			name: "a device plugin told the NUMA node", n: 2, granted: grant(lifecycle.DeviceGrant{NUMA: map[string][]int{"nvidia.com/gpu": {1}}}),
			cpus: "8-9", why: "near its devices (nvidia.com/gpu): 8 of 16 CPUs are left",
		},
		{
			name: "a device plugin has PCI addresses for ids", n: 2, granted: grant(lifecycle.DeviceGrant{IDs: map[string][]string{"x/nic": {"0000:3b:00.0"}}}),
			cpus: "8-9", why: "near its devices (0000:3b:00.0)",
		},
		{
			name: "a CDI device by its PCI address", n: 2, told: lifecycle.Container{CDIDevices: []string{"x/nic=0000:3b:00.0"}},
			cpus: "8-9", why: "near its devices (0000:3b:00.0)",
		},
		{
			name: "a device node", n: 2, told: lifecycle.Container{Devices: []lifecycle.Device{{Type: "c", Major: 231, Minor: 192}}},
			cpus: "8-9", why: "near its devices (0000:3b:00.0)",
		},
		{name: "a disk of the same number", n: 2, told: lifecycle.Container{Devices: []lifecycle.Device{{Type: "b", Major: 231, Minor: 192}}}, cpus: "0-1"},
		{
			name: "a card a scheduler allocated", n: 2, annotations: map[string]string{intent.KoordDevices: `{"rdma":[{"id":"0000:3b:00.0"}]}`},
			cpus: "8-9", why: "near its devices (0000:3b:00.0)",
		},
		{
			name: "of another container of the pod", n: 2,
			granted: &lifecycle.KubeletGrants{UID: "u", Namespace: "default", Name: "p", Containers: map[string]lifecycle.DeviceGrant{
				"side": {NUMA: map[string][]int{"x/nic": {1}}},
			}},
			cpus: "8-9", why: "near its devices (x/nic)",
		},
		{
			name: "devices at both nodes", n: 2, granted: grant(lifecycle.DeviceGrant{IDs: map[string][]string{"x/nic": {"0000:17:00.0", "0000:3b:00.0"}}}), cpus: "0-1",
		},
		{name: "the firmware says nothing", n: 2, granted: grant(lifecycle.DeviceGrant{IDs: map[string][]string{"x/nic": {"0000:01:00.0"}}}), cpus: "0-1"},
		{
			name: "too many for the node", n: 10, granted: grant(lifecycle.DeviceGrant{NUMA: map[string][]int{"x/nic": {1}}}),
			cpus: "0-3,8-13", why: "near its devices (x/nic): as many as possible of 8 preferred CPUs, and the rest from 8 other CPUs",
		},
		{
			name: "switched off", n: 2, granted: grant(lifecycle.DeviceGrant{NUMA: map[string][]int{"x/nic": {1}}}),
			change: func(ch *pools.Policy) { ch.NearDevices = false }, cpus: "0-1",
		},
		{
			name: "bound to a NUMA node", n: 2, annotations: map[string]string{intent.KatalystMemory: bound},
			granted: grant(lifecycle.DeviceGrant{NUMA: map[string][]int{"x/nic": {1}}}),
			cpus:    "8-9", why: "1 NUMA node: of 2 choices with enough CPUs, the one with the most nodes near its devices (x/nic)",
		},
		{name: "efficient cores by annotation", n: 2, annotations: map[string]string{intent.TrimtabCoreType: "efficient"}, cpus: "4-5", why: "near efficiency cores: 4 of 12 CPUs are left"},
		{name: "by configuration", n: 2, change: func(ch *pools.Policy) { ch.CoreKind = topology.EfficiencyCore }, cpus: "4-5", why: "near efficiency cores"},
		{
			name: "the annotation before the configuration", n: 2, annotations: map[string]string{intent.TrimtabCoreType: "performance"},
			change: func(ch *pools.Policy) { ch.CoreKind = topology.EfficiencyCore }, cpus: "0-1", why: "near performance cores",
		},
		{name: "more than there are of the kind", n: 6, annotations: map[string]string{intent.TrimtabCoreType: "efficient"}, cpus: "0-5", why: "near efficiency cores: not possible, because it would leave only 4 of 12 CPUs"},
		{name: "one CPU alone", n: 1, cpus: "6", why: "near isolated CPUs: 4 of 16 CPUs are left"},
		{name: "one CPU, not isolated", n: 1, annotations: map[string]string{intent.TrimtabIsolated: "false"}, cpus: "0", why: "away from isolated CPUs"},
		{name: "several isolated ones", n: 2, annotations: map[string]string{intent.TrimtabIsolated: "true"}, cpus: "6-7", why: "near isolated CPUs: 4 of 16 CPUs are left"},
		{name: "all the same", n: 2, change: func(ch *pools.Policy) { ch.Isolated = pools.IsolatedPreferred }, cpus: "6-7", why: "near isolated CPUs"},
		{name: "nobody", n: 1, change: func(ch *pools.Policy) { ch.Isolated = pools.IsolatedAvoided }, cpus: "0", why: "away from isolated CPUs"},
		{
			name: "the device before the kind of core", n: 2, annotations: map[string]string{intent.TrimtabCoreType: "efficient"},
			granted: grant(lifecycle.DeviceGrant{NUMA: map[string][]int{"x/nic": {1}}}), cpus: "12-13", why: "near efficiency cores: 2 of 6 CPUs are left",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := hybrid(t)
			policy := Policy{
				Dialects: intent.Dialects(), PlacementOn: true, Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
				Placement: &pools.Policy{Tree: choose.NewTree(m), NearDevices: true},
			}
			if c.change != nil {
				c.change(policy.Placement.(*pools.Policy))
			}
			s := NewState(m, policy)
			pod := &lifecycle.Pod{ID: "s", UID: "u", Namespace: "default", Name: "p", Annotations: map[string]string{intent.KatalystQoSLevel: dedicated}}
			for key, text := range c.annotations {
				pod.Annotations[key] = text
			}
			var r lifecycle.Resources
			r.CPU.Shares, r.CPU.Quota = lifecycle.Some(uint64(c.n*1024)), lifecycle.Some(int64(c.n*100000))
			pod.Resources = &r
			f := Facts{}
			if c.granted != nil {
				f.Granted = map[string]*lifecycle.KubeletGrants{"u": c.granted}
			}
			ctr := c.told
			ctr.ID, ctr.PodID, ctr.Name, ctr.Resources = "c", "s", "main", r
			plan := Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &ctr}, f)
			s.Commit(plan)
			got := s.Container("c")
			if cpus := m.Format(got.Assignment.Owned); cpus != c.cpus || !strings.Contains(got.Assignment.Why, c.why) {
				t.Errorf("it owns %s because %q; want %s because %q", cpus, got.Assignment.Why, c.cpus, c.why)
			}
		})
	}
}
