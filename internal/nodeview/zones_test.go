package nodeview

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

var update = flag.Bool("update", false, "rewrite golden files")

// still is a node that does not change.
type still struct{ v *View }

func (s still) View(read func(*View)) { read(s.v) }

func described(t testing.TB, text string) *topology.Machine {
	t.Helper()
	m, err := describe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tiered has two sockets, HBM near each and CXL memory, huge pages, and hybrid cores.
func tiered(t *testing.T) *topology.Machine {
	t.Helper()
	l := topology.Layout{Nodes: []topology.Node{
		{ID: 0, Memory: 64 << 30, HugePages: map[uint64]uint64{2 << 20: 512, 1 << 30: 4}, Distance: []int{10, 21, 13, 30}},
		{ID: 1, Memory: 64 << 30, HugePages: map[uint64]uint64{2 << 20: 0, 1 << 30: 0}, Distance: []int{21, 10, 23, 17}},
		{ID: 2, Memory: 16 << 30, Kind: topology.HBM, Distance: []int{13, 23, 10, 40}},
		{ID: 8, Memory: 256 << 30, Kind: topology.PMEM, Distance: []int{30, 17, 40, 10}},
	}}
	for i := range 12 {
		c := topology.CPU{ID: i, Core: i / 2, Node: i / 6, Package: i / 6, Kind: topology.PerformanceCore}
		if i%6 >= 4 {
			c.Core, c.Kind = i, topology.EfficiencyCore
		}
		l.CPUs = append(l.CPUs, c)
	}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// state is a node with reserved CPUs and the shared pool of all others.
func state(m *topology.Machine, reserved string) *engine.State {
	held, _ := m.ParseCPUs(reserved)
	usual := m.Online().Minus(held)
	return engine.NewState(m, engine.Policy{
		Dialects: []string{"koordinator", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
		Pools: placement.Pools{Online: m.Online(), Reserved: held, Shared: usual, Reclaimed: usual},
		Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}},
		Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
	})
}

// run starts a pod with one container; a scheduler's choice may be in status.
func run(t testing.TB, s *engine.State, name, status string, mems string, requests lifecycle.Amounts) {
	t.Helper()
	pod := &lifecycle.Pod{
		ID: "sandbox-" + name, UID: "uid-" + name, Namespace: "d", Name: name, CgroupParent: "/kubepods/p",
		Labels: map[string]string{"koordinator.sh/qosClass": "LS"}, Annotations: map[string]string{},
	}
	if status != "" {
		pod.Annotations[intent.KoordResourceStatus] = status
	}
	spec := &lifecycle.PodSpec{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed", From: lifecycle.FromPodsAPI,
		Containers: []lifecycle.ContainerSpec{{Name: "c", Requests: requests, Limits: requests}},
	}
	container := &lifecycle.Container{ID: name, PodID: pod.ID, Name: "c"}
	container.Resources.CPU.Mems = mems
	for _, ev := range []lifecycle.Event{
		{Kind: lifecycle.RunPodSandbox, Pod: pod}, {Kind: lifecycle.CreateContainer, Pod: pod, Container: container},
	} {
		s.Commit(engine.Decide(s, &ev, engine.Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}}))
	}
}

// busy is a node with a pod that owns CPUs, one bound to a NUMA node, one bound to none, and one whose
// memory is bound.
func busy(t *testing.T, s *engine.State) *engine.State {
	t.Helper()
	run(t, s, "owner", `{"cpuset":"2-3"}`, "0", lifecycle.Amounts{"cpu": 2000, "memory": 4 << 30})
	run(t, s, "bound", `{"numaNodeResources":[{"node":1,"resources":{"cpu":"1500m"}}]}`, "", lifecycle.Amounts{"cpu": 1500, "memory": 1 << 30})
	run(t, s, "free", "", "", lifecycle.Amounts{"cpu": 3000, "memory": 2 << 30})
	run(t, s, "paged", "", "0", lifecycle.Amounts{"cpu": 500, "memory": 1 << 30, "hugepages-2Mi": 256 << 20})
	return s
}

// TestZones: the published zones of several machines, without pods and with pods.
func TestZones(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state *engine.State
	}{
		{"one", state(described(t, "4c, 8GiB/node"), "")},
		{"two", state(described(t, "2s x 4c x 2t, 64GiB/node"), "0,8")},
		{"two-busy", busy(t, state(described(t, "2s x 4c x 2t, 64GiB/node"), "0,8"))},
		{"tiered-busy", busy(t, state(tiered(t), ""))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := Zones(still{&View{State: tc.state}})
			got, err := json.MarshalIndent(map[string]any{
				"nrt":         n.NRT(zones.TopologyManager{Policy: "single-numa-node", Scope: "container"}),
				"annotations": n.Koordinator(),
				"cnr":         n.CNR(zones.TopologyManager{Policy: "single-numa-node", Scope: "container"}),
			}, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "zones-"+tc.name+".json")
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
				t.Errorf("run go test -update if it should change (-want +got):\n%s", d)
			}
		})
	}
}

// TestZonesOfAPool: shared CPUs are free on every NUMA node until a pod owns them, and an owner's CPUs are
// free again after its end.
func TestZonesOfAPool(t *testing.T) {
	s := state(described(t, "2s x 4c, 64GiB/node"), "")
	free := func() (all [2]int64) {
		for i, z := range Zones(still{&View{State: s}}).Zones {
			all[i] = z.Resource(zones.CPUs).Available
		}
		return all
	}
	for _, step := range []struct {
		name string
		do   func()
		want [2]int64
	}{
		{"at rest", func() {}, [2]int64{4000, 4000}},
		{"a container that any CPU is for", func() { run(t, s, "free", "", "", lifecycle.Amounts{"cpu": 3000}) }, [2]int64{4000, 4000}},
		{"an owner", func() { run(t, s, "owner", `{"cpuset":"1-2"}`, "", lifecycle.Amounts{"cpu": 2000}) }, [2]int64{2000, 4000}},
		{"the owner ends", func() {
			pod := s.Pod("sandbox-owner").Pod
			for _, k := range []lifecycle.Kind{lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox} {
				s.Commit(engine.Decide(s, &lifecycle.Event{Kind: k, Pod: pod}, engine.Facts{}))
			}
		}, [2]int64{4000, 4000}},
	} {
		step.do()
		if got := free(); got != step.want {
			t.Errorf("%s: %v free, want %v", step.name, got, step.want)
		}
	}
}
