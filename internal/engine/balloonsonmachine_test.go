package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/balloons/pick"
	"github.com/trimtab/trimtab/internal/topology"
)

// TestBalloonsOnMachine: a type that is too large for the machine, and devices that the machine lacks, are
// refused.
func TestBalloonsOnMachine(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 2c x 2t", balloons.PolicyOptions{})
	near := func(device string) balloons.TypeOptions {
		return balloons.TypeOptions{Name: "a", PreferCloseToDevices: []string{"/sys/devices/" + device}}
	}
	for path, types := range map[string][]balloons.TypeOptions{
		"":                        {near("system/node/node3"), {Name: "b", MinCPUs: 16}, {Name: "c", MinCPUs: 4, MinBalloons: 4}},
		"balloonTypes[0].minCPUs": {{Name: "a", MinCPUs: 17}},
		"balloonTypes[2].minCPUs": {{Name: "x", MinCPUs: 9}, {Name: "y"}, {Name: "a", Components: []balloons.ComponentOptions{{BalloonType: "x"}, {BalloonType: "x"}}}},
		"balloonTypes":            {{Name: "a", MinCPUs: 5, MinBalloons: 4}},
		"balloonTypes[0].preferCloseToDevices[0]": {near("system/node/node4")},
	} {
		var got string
		for _, w := range balloons.CheckOnMachine(m, p.Pools.Shared.Union(p.Pools.Reserved), balloons.PolicyOptions{BalloonTypes: types}) {
			got = w.Path
		}
		if got != path {
			t.Errorf("%v: %q, want %q", types, got, path)
		}
	}
	for device, want := range map[string]string{
		"system/cpu/cpu3/cache/index3": "", "system/cpu/cpu3": "", "system/cpu/cpu99": "x", "pci0000:00/0000:00:02.0": "x", "system/node/nodeX": "x", "../etc": "x",
	} {
		if wrong := balloons.CheckOnMachine(m, m.Online(), balloons.PolicyOptions{BalloonTypes: []balloons.TypeOptions{near(device)}}); (len(wrong) > 0) != (want != "") {
			t.Errorf("%s: %v", device, wrong)
		}
	}
}

// TestLoadedL2: balloons that load L2 caches share none, where there are enough; without the load they do.
func TestLoadedL2(t *testing.T) {
	t.Parallel()
	cpus := make([]topology.CPU, 8)
	for id := range cpus {
		cpus[id] = topology.CPU{ID: id, Core: id, L2: id / 4}
	}
	m, err := topology.New(cpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, loads := range [][]string{{"streams"}, nil} {
		_, p := balloonsPolicy(t, "1s x 8c", balloons.PolicyOptions{})
		p.Placement = balloons.New(m, pick.New(m), balloons.PolicyOptions{
			PinCPU: true, LoadClasses: []balloons.LoadOptions{{Name: "streams", Level: "l2cache"}},
			BalloonTypes: []balloons.TypeOptions{{Name: "a", Namespaces: []string{"a"}, MaxCPUs: 1, PreferNewBalloons: true, Loads: loads}},
		})
		s := NewState(m, p)
		var near []topology.Set
		for n := range 2 {
			pod, c := balloonPod(n, "a", "x", 1000)
			s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
			near = append(near, m.ExpandToGroups(topology.L2Level, s.CPUs(s.Container(c.ID))))
		}
		if apart := near[0].And(near[1]).Empty(); apart != (loads != nil) {
			t.Errorf("loads %v: %s and %s", loads, m.Format(near[0]), m.Format(near[1]))
		}
	}
}
