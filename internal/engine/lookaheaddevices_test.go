package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestLookAheadDevices: CDI devices of later containers are counted like their CPUs, and those that each one takes are
// not free for the next. NUMA node 0 has two CPUs and one device, node 1 two CPUs and two devices; nodes 2 and 3 have
// CPUs alone.
func TestLookAheadDevices(t *testing.T) {
	address := func(node, n int) string { return fmt.Sprintf("0000:%d%d:00.0", node, n) }
	var cards []topology.Device
	var all []lifecycle.NodeDevice
	for _, at := range [][2]int{{0, 0}, {1, 0}, {1, 1}} {
		cards = append(cards, topology.Device{Address: address(at[0], at[1]), Node: at[0]})
		all = append(all, lifecycle.NodeDevice{Name: "v.com/gpu=" + address(at[0], at[1])})
	}
	for _, tc := range []struct {
		name    string
		asks    string
		cpus    []int64
		ran     int
		refused string
	}{
		{"each has its own", `"a":{"v.com/gpu":1},"b":{"v.com/gpu":1}`, []int64{2, 2}, 2, ""},
		{"a later one needs more than its node has", `"b":{"v.com/gpu":3}`, []int64{1, 1}, 0, "container b, which is created later: "},
		{"the first takes what the second needs", `"a":{"v.com/gpu":1},"b":{"v.com/gpu":2}`, []int64{2, 2}, 2, ""},
		{"the second takes what the third needs", `"b":{"v.com/gpu":2},"c":{"v.com/gpu":1}`, []int64{2, 1, 1}, 0, "container c, which is created later: "},
		{"one without CPUs takes what the third needs", `"b":{"v.com/gpu":2},"c":{"v.com/gpu":1}`, []int64{2, 0, 2}, 0, "container c, which is created later: "},
		{"one without CPUs leaves enough", `"a":{"v.com/gpu":1},"b":{"v.com/gpu":1},"c":{"v.com/gpu":1}`, []int64{2, 0, 2}, 3, ""},
		{"none asks", ``, []int64{1, 1}, 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := aligning(t, numahints.SingleNode, false)
			s.Machine.Devices = cards
			s.Policy.Hooks = append(s.Policy.Hooks, hook.CDIDevicesOptions{Classes: []string{"v.com/gpu"}})
			s.Policy.Rules, s.Policy.Dialects = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}, intent.Dialects()
			pod := alignedPod{name: "p", annotations: map[string]string{intent.TrimtabCDIDevices: "{" + tc.asks + "}"}}
			for _, n := range tc.cpus {
				pod.containers = append(pod.containers, alignedContainer{cpus: n})
			}
			on, refused := pod.play(t, s, func(f *Facts) { f.NodeDevices = all })
			if len(on) != tc.ran || (refused == "") != (tc.refused == "") || !strings.Contains(refused, tc.refused) {
				t.Errorf("%d containers ran, on %v; refused: %q; devices %v", len(on), on, refused, s.Devices())
			}
			if refused != "" && len(s.Devices()) > 0 {
				t.Errorf("a refused pod has %v", s.Devices())
			}
		})
	}
}
