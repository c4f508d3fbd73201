package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/topology"
)

// balloonNode is n4c16 of nri-plugins' end-to-end tests with some types of balloons.
type balloonNode struct {
	t    *testing.T
	s    *State
	n    int
	pods map[string]*lifecycle.Pod
}

func newBalloonNode(t *testing.T, types ...balloons.TypeOptions) *balloonNode {
	t.Helper()
	m, p := balloonsPolicy(t, "2s x 2n x 2c x 2t", balloons.PolicyOptions{BalloonTypes: types})
	b := &balloonNode{t: t, s: NewState(m, p), pods: map[string]*lifecycle.Pod{}}
	b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: lifecycle.Synchronize}, Facts{}))
	return b
}

// run creates a pod with a container for each request in milli-CPUs, and returns their CPUs.
func (b *balloonNode) run(namespace, name string, millis ...int64) (all []topology.Set) {
	b.t.Helper()
	for i, milli := range millis {
		b.n++
		pod, c := balloonPod(b.n, namespace, "a", milli)
		if i > 0 {
			pod = b.pods[name]
			c.PodID = pod.ID
		}
		c.Name = fmt.Sprintf("c%d", i)
		b.pods[name] = pod
		plan := Decide(b.s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{})
		b.s.Commit(plan)
		cpus, _ := b.s.layout.CPUs(b.s.Container(c.ID).Assignment.CPUGroup)
		all = append(all, cpus)
	}
	return all
}

func (b *balloonNode) remove(name string) {
	b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: b.pods[name]}, Facts{}))
}

// has compares the balloons of a type, and the number of CPUs of each.
func (b *balloonNode) has(row, kind string, want ...string) {
	b.t.Helper()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(b.s.Balloons())) {
		if strings.HasPrefix(name, kind+"[") {
			got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(name, kind), b.s.Balloons()[name].Len()))
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: balloons of type %s are %v, want %v", row, kind, got, want)
	}
}

// sizes compares the CPUs of containers: the number of each, and whether containers share them.
func (b *balloonNode) sizes(row string, cpus []topology.Set, each int, same bool) {
	b.t.Helper()
	for i, c := range cpus {
		if c.Len() != each || same && c != cpus[0] || !same && i > 0 && !c.And(cpus[i-1]).Empty() {
			b.t.Errorf("%s: container %d has CPUs %s", row, i, b.s.Machine.Format(c))
		}
	}
}

// TestBalloonTables: rows of nri-plugins' end-to-end tests (balloons/n4c16, test02-metrics and
// test09-isolated) about which balloons exist.
func TestBalloonTables(t *testing.T) {
	t.Parallel()
	t.Run("B14 to B17", func(t *testing.T) {
		t.Parallel()
		b := newBalloonNode(t, balloons.TypeOptions{Name: "pods", Namespaces: []string{"pods"}, MaxCPUs: 2, MinBalloons: 2, PreferNewBalloons: true})
		b.has("B14", "pods", "[0] 0", "[1] 0")
		first := b.run("pods", "p1", 0, 0)
		b.sizes("B15", first, 1, true)
		b.has("B15", "pods", "[0] 1", "[1] 0")
		second := b.run("pods", "p2", 600, 600)
		b.sizes("B16", second[1:], 2, true)
		b.has("B16", "pods", "[0] 1", "[1] 2")
		b.sizes("B17", b.run("pods", "p3", 100, 100), 1, true)
		b.has("B17", "pods", "[0] 1", "[1] 2", "[2] 1")
	})
	t.Run("B18", func(t *testing.T) {
		t.Parallel()
		b := newBalloonNode(t, balloons.TypeOptions{
			Name: "ctrs", Namespaces: []string{"ctrs"}, MinCPUs: 1, MaxCPUs: 1, MinBalloons: 2, PreferNewBalloons: true, PreferSpreadingPods: true,
		})
		b.sizes("B18", b.run("ctrs", "p", 0, 0, 0, 0), 1, false)
		b.has("B18", "ctrs", "[0] 1", "[1] 1", "[2] 1", "[3] 1")
	})
	t.Run("B23", func(t *testing.T) {
		t.Parallel()
		b := newBalloonNode(t, balloons.TypeOptions{Name: "flex", Namespaces: []string{"flex"}, MaxCPUs: 8})
		b.run("flex", "first", 3500)
		b.has("B23", "flex", "[0] 4")
		b.run("flex", "second", 1200)
		b.has("B23", "flex", "[0] 5")
		b.remove("first")
		b.has("B23", "flex", "[0] 2")
		b.remove("second")
		b.has("B23", "flex")
	})
	t.Run("B24", func(t *testing.T) {
		t.Parallel()
		b := newBalloonNode(t, balloons.TypeOptions{Name: "dual", Namespaces: []string{"dual"}, MinCPUs: 4, MaxCPUs: 4, PreferNewBalloons: true})
		b.run("dual", "first", 100)
		b.run("dual", "second", 100)
		b.remove("first")
		b.has("B24", "dual", "[1] 4")
		b.run("dual", "third", 100)
		b.has("B24", "dual", "[0] 4", "[1] 4")
	})
	t.Run("B8", func(t *testing.T) {
		t.Parallel()
		b := newBalloonNode(t, balloons.TypeOptions{
			Name: "five", Namespaces: []string{"five"}, MaxCPUs: 5, PreferNewBalloons: true, PreferSpreadingPods: true,
		}, balloons.TypeOptions{Name: "rest", MinCPUs: 5, MaxCPUs: 5, MinBalloons: 1})
		six := b.run("five", "b6", 1250, 1250, 1250)
		b.sizes("B6", six, 2, false)
		seven := b.run("five", "b7", 0, 0, 0, 0)
		b.sizes("B7", seven, 1, false)
		eight := b.run("five", "b8", 0, 0, 0, 0)
		for i, c := range eight {
			if c.Len() != 1 || slices.Contains(eight[:i], c) || !slices.Contains(seven, c) {
				t.Errorf("B8: container %d has CPUs %s", i, b.s.Machine.Format(c))
			}
		}
	})
}

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
		for _, w := range balloons.CheckOn(m, p.Pools.Shared.Union(p.Pools.Reserved), balloons.PolicyOptions{BalloonTypes: types}) {
			got = w.Path
		}
		if got != path {
			t.Errorf("%v: %q, want %q", types, got, path)
		}
	}
	for device, want := range map[string]string{
		"system/cpu/cpu3/cache/index3": "", "system/cpu/cpu3": "", "system/cpu/cpu99": "x", "pci0000:00/0000:00:02.0": "x", "system/node/nodeX": "x", "../etc": "x",
	} {
		if wrong := balloons.CheckOn(m, m.Online(), balloons.PolicyOptions{BalloonTypes: []balloons.TypeOptions{near(device)}}); (len(wrong) > 0) != (want != "") {
			t.Errorf("%s: %v", device, wrong)
		}
	}
}
