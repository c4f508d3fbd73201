package hooks_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// place has the wanted CPUs of a container, and its wanted memory nodes if they are checked.
type place struct{ cpus, mems string }

// levelled returns a pod of one container with a Katalyst class. An owner's limit is its request.
func levelled(name, level, memory string, shares uint64) *scenario.Run {
	r := &scenario.Run{
		Pod:        scenario.Pod{Namespace: "shop", Name: name, QoS: "Burstable", Annotations: map[string]string{"katalyst.kubewharf.io/qos_level": level + "_cores"}},
		Containers: []scenario.Container{{Name: "c", Resources: scenario.Resources{Shares: &shares}}},
	}
	if memory != "" {
		r.Pod.Annotations["katalyst.kubewharf.io/memory_enhancement"] = memory
	}
	if level == "dedicated" {
		r.Pod.QoS, r.Containers[0].Resources.Quota = "Guaranteed", new(int64(shares/1024)*100_000)
	}
	if level == "reclaimed" {
		r.Pod.QoS = "BestEffort"
	}
	return r
}

// lender returns an LSR pod of one CPU, which reclaimed pods may use.
func lender(name string) *scenario.Run {
	r := levelled(name, "dedicated", "", 1024)
	r.Pod.Annotations, r.Pod.Labels = nil, map[string]string{"koordinator.sh/qosClass": "LSR"}
	return r
}

const toNode = `{"numa_binding":"true"}`

// settled has the places after poolClasses. CPU 0 is reserved, the lender owns CPU 5.
var settled = map[string]place{
	"web": {"1,4", "0-3"}, "batch": {"3,5", "0-3"}, "silent": {"0-4", "0-3"}, "db": {"6-7", "3"}, "lsr": {"5", "2"}, "near": {"2", "1"},
}

// resized has the places after poolResize: the lender gave up the other of its two CPUs, and pools change only as much
// as necessary.
var resized = map[string]place{
	"web": {cpus: "1,3"}, "batch": {cpus: "4-5"}, "silent": {cpus: "0-3,5"}, "db": {"6-7", "3"}, "lsr": {"4", "2"}, "near": {"2", "1"},
}

// poolWay is an attachment with the socket for kubelet calls.
type poolWay struct {
	name   string
	attach string
	socket string
	// before: values are in force at the first instruction
	before bool
	// parted: partitions keep other processes off CPUs that are not lent
	parted bool
}

const poolsName = "pools-life"

// poolWays has the attachments by name.
var poolWays = []poolWay{
	{name: "nri", before: true}, {name: "cri", attach: "cri", socket: "/run/trimtab/cri.sock", before: true}, {name: "bypass", attach: "bypass"},
}

// TestPools uses policy pools on four NUMA nodes, through NRI, the CRI proxy and bypass, over restarts and with CPUs
// that go offline and come back.
func TestPools(t *testing.T) {
	t.Parallel()
	for _, w := range poolWays {
		for _, g := range guests() {
			way, turn := w, turnName(w.name, poolsName, g.name)
			way.parted = g.Kernel == "6.12"
			if !soak() && !theTurns.Due(t, turn) {
				continue
			}
			t.Run(w.name+"/"+g.name, func(t *testing.T) {
				t.Parallel()
				if !soak() {
					theTurns.Note(t, turn)
				}
				poolLifecycle(t, g.Guest, way)
			})
		}
	}
}

// poolLifecycle plays all parts on one node, one after another.
func poolLifecycle(t *testing.T, g vm.Guest, w poolWay) {
	t.Helper()
	g.Topology = vm.FourNodes
	keys := map[string]any{
		"placement": map[string]any{"policy": "pools", "reclaim": "leftover", "lendLSR": true}, "pools": map[string]any{"reserved": "0"},
		"authorization": []any{map[string]any{"kinds": []string{"numa-exclusive"}, "namespaces": []string{"shop"}, "decision": "allow"}},
	}
	if w.attach != "" {
		keys["attach"] = w.attach
	}
	if w.parted {
		keys["hooks"] = map[string]any{"partition": map[string]any{"enabled": true}}
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, g, text)
	n.patientRuntime()
	if w.socket != "" {
		n.cri = n.m.CRI(w.socket)
	}
	for _, part := range []struct {
		name string
		play func(*testing.T, *machine, poolWay)
	}{{"classes", poolClasses}, {"resize", poolResize}, {"restarts", poolRestarts}, {"offline", poolOffline}} {
		if !t.Run(part.name, func(t *testing.T) { part.play(t, n.of(t), w) }) {
			return // the next part needs the state of this one
		}
		if w.parted {
			wantAlone(t, n, "after "+part.name, map[string]string{"db": "6-7", "lsr": ""}) // which lends its CPUs
		}
	}
}

// poolClasses creates pods of all classes, and creates and removes one that owns a NUMA node.
func poolClasses(t *testing.T, n *machine, w poolWay) {
	t.Helper()
	for _, r := range []*scenario.Run{
		levelled("web", "shared", "", 2048), levelled("batch", "reclaimed", "", 2), labelled("silent", "", ""),
		levelled("db", "dedicated", toNode, 2048), lender("lsr"), levelled("near", "shared", toNode, 1024),
	} {
		n.runPlaced(t, r)
	}
	wantPlaces(t, n, "with a pod of each class", settled)
	if w.before {
		for name, want := range map[string]place{"db": settled["db"], "lsr": settled["lsr"], "near": settled["near"]} {
			if got := n.ctrs[ctr(name)].first; !sameList(got.Affinity, want.cpus) || !sameList(got.MemsAllowed, want.mems) {
				t.Errorf("%s first saw affinity %s and memory nodes %s, want %+v", name, got.Affinity, got.MemsAllowed, want)
			}
		}
	}
	n.runPlaced(t, levelled("whole", "dedicated", `{"numa_binding":"true","numa_exclusive":"true"}`, 1024))
	crowded := maps.Clone(settled)
	// Running containers keep their memory nodes, since a change would migrate pages.
	crowded["whole"], crowded["web"], crowded["silent"] = place{"1", "0"}, place{"3-4", "0-3"}, place{"0,2-4", "0-3"}
	if w.parted {
		wantAlone(t, n, "with a pod that has a NUMA node alone", map[string]string{"db": "6-7", "whole": "1", "lsr": "", "web": ""})
	}
	n.runPlaced(t, levelled("late", "shared", "", 128))
	crowded["late"] = place{"3-4", "1-3"}
	wantPlaces(t, n, "with a pod that has a NUMA node alone", crowded)
	for _, name := range []string{"late", "whole"} {
		if err := n.remove(scenario.PodRef("shop", name)); err != nil {
			t.Fatal(err)
		}
	}
	wantPlaces(t, n, "without it", settled)
}

// wantAlone waits until pods are partitions with these CPUs, and those without CPUs are no partitions.
func wantAlone(t *testing.T, n *machine, when string, want map[string]string) {
	t.Helper()
	err := agent.Await(func() error {
		var notes []string
		for name, cpus := range want {
			dir, is := path.Join(root, n.pods[ctr(name).Pod()].dir), "member"
			if cpus != "" {
				is = "root"
			}
			for file, text := range map[string]string{"cpuset.cpus.partition": is, "cpuset.cpus.exclusive": cpus} {
				if got := n.m.Read(path.Join(dir, file)); got != text {
					notes = append(notes, fmt.Sprintf("%s of %s is %q, want %q", file, name, got, text))
				}
			}
		}
		return lines(notes)
	})
	if err != nil {
		t.Fatalf("%s:\n%v", when, err)
	}
}

// patientRuntime sets longer timeouts for shims after a restart of containerd. After its default of two seconds, which
// an emulated machine can exceed, it drops the container, although that keeps running.
func (n *machine) patientRuntime() {
	n.t.Helper()
	n.m.Sh(`cat >>/etc/containerd/config.toml <<'EOF'
[timeouts]
  'io.containerd.timeout.shim.load' = '60s'
  'io.containerd.timeout.task.state' = '60s'
EOF`)
}

func (n *machine) runPlaced(t *testing.T, r *scenario.Run) {
	t.Helper()
	if err := n.run(r); err != nil {
		t.Fatal(err)
	}
}

// poolResize resizes containers in place like a kubelet, which writes the pod's cgroup first if the pod grows, and last
// if it shrinks. Pools follow the requests of their containers, an owner's CPUs follow its own, and the agent refuses a
// request that does not fit.
func poolResize(t *testing.T, n *machine, _ poolWay) {
	t.Helper()
	of := func(cpus uint64, owner bool) *scenario.Resources {
		r := &scenario.Resources{Shares: new(cpus * 1024)}
		if owner {
			r.Quota = new(int64(cpus) * 100_000)
		}
		return r
	}
	crowded := maps.Clone(settled)
	crowded["lsr"], crowded["web"], crowded["batch"], crowded["silent"] = place{"4-5", "2"}, place{cpus: "1,3"}, place{cpus: "3-5"}, place{cpus: "0-3"}
	gave := maps.Clone(crowded)
	gave["db"], gave["batch"], gave["silent"] = place{"6", "3"}, place{cpus: "4-5,7"}, place{cpus: "0-3,7"}
	wide := maps.Clone(settled)
	wide["web"] = place{cpus: "1,3-4"}
	for _, s := range []struct {
		name         string
		before, asks uint64
		owner        bool
		want         map[string]place
		problem      string
	}{
		{"web", 2, 3, false, wide, ""},
		{"web", 3, 2, false, settled, ""},
		{"lsr", 1, 2, true, crowded, ""},
		{"db", 2, 1, true, gave, ""},
		{"db", 1, 3, true, gave, "the container requests 3 CPUs now and owns 1"},
		{"db", 3, 2, true, crowded, ""},
		{"lsr", 2, 1, true, resized, ""},
	} {
		u := &scenario.Update{Container: ctr(s.name), Resources: *of(s.asks, s.owner)}
		if u.Pod = of(s.asks, s.owner); s.asks < s.before {
			u.Pod, u.PodAfter = nil, u.Pod
		}
		if err := (&player{machine: n}).act(&scenario.Step{Update: u}); err != nil {
			t.Fatal(err)
		}
		wantPlaces(t, n, fmt.Sprintf("with %s resized from %d CPUs to %d", s.name, s.before, s.asks), s.want)
		if s.problem != "" {
			if err := n.reports(s.name, s.problem); err != nil {
				t.Error(err)
			}
		}
	}
}

// poolRestarts restarts agent and runtime in every order, and the agent without its state. No container may move.
func poolRestarts(t *testing.T, n *machine, _ poolWay) {
	t.Helper()
	p := &player{machine: n}
	agentEnds, runtimeEnds := n.a.Kill, n.m.StopContainerd
	agentStarts, runtimeStarts := n.a.Spawn, n.m.StartContainerd
	forgets := func() { n.m.Sh("rm -rf /var/lib/trimtab/*") }
	for _, order := range []struct {
		name  string
		steps []func()
	}{
		{"the agent", []func(){agentEnds, agentStarts}},
		{"the runtime", []func(){runtimeEnds, runtimeStarts}},
		{"both, the agent starts first", []func(){agentEnds, runtimeEnds, agentStarts, runtimeStarts}},
		{"both, the runtime starts first", []func(){runtimeEnds, agentEnds, runtimeStarts, agentStarts}},
		{"the agent, without its state", []func(){agentEnds, forgets, agentStarts}},
	} {
		restart := &scenario.Step{Restart: "agent"}
		before := p.snapshot(restart)
		for _, do := range order.steps {
			do()
			wantPlaces(t, n, "while "+order.name+" restarts", resized)
		}
		if err := n.a.AwaitAttached(); err != nil {
			t.Fatalf("after a restart of %s: %v", order.name, err)
		}
		if err := lines(moved(nil, before, p.snapshot(restart))); err != nil {
			t.Errorf("after a restart of %s: %v", order.name, err)
		}
		wantPlaces(t, n, "after a restart of "+order.name, resized)
	}
}

// poolOffline takes CPUs of an owner and of a pool offline and online again. Pools are divided again at once.
func poolOffline(t *testing.T, n *machine, _ poolWay) {
	t.Helper()
	n.m.Sh("for c in 3 7; do echo 0 >/sys/devices/system/cpu/cpu$c/online; done")
	without := maps.Clone(resized)
	without["db"], without["web"], without["batch"], without["silent"] = place{cpus: "6"}, place{cpus: "1,5"}, place{cpus: "4-5"}, place{cpus: "0-2,5"}
	wantPlaces(t, n, "without CPUs 3 and 7", without)
	if err := n.reports("db", "offline"); err != nil {
		t.Error(err)
	}
	n.runPlaced(t, levelled("late", "shared", "", 1024))
	without["late"] = place{cpus: "1,5"}
	wantPlaces(t, n, "with a pod created without CPUs 3 and 7", without)
	n.m.Sh("for c in 3 7; do echo 1 >/sys/devices/system/cpu/cpu$c/online; done")
	again := maps.Clone(resized)
	again["web"], again["late"] = place{cpus: "1,3,5"}, place{cpus: "1,3,5"}
	if n.m.Guest.CgroupV1 {
		// Version 1 takes a CPU that goes offline out of every cpuset permanently, kubepods among them.
		again = maps.Clone(without)
		again["batch"] = resized["batch"]
	}
	wantPlaces(t, n, "with all CPUs again", again)
}

// reports waits until the agent reports a problem of a container.
func (n *machine) reports(name, text string) error {
	return agent.Await(func() error {
		found, err := n.a.Explain("shop", name, "c")
		if err != nil || len(found) == 0 {
			return fmt.Errorf("the agent does not know %s (%w)", name, err)
		}
		if said := fmt.Sprint(found[0].Problems); !strings.Contains(said, text) {
			return fmt.Errorf("the problems of %s are %s, want one with %q", name, said, text)
		}
		return nil
	})
}

// wantPlaces waits until containers have their places, by their cgroups and by the affinity of their processes.
func wantPlaces(t *testing.T, n *machine, when string, want map[string]place) {
	t.Helper()
	err := agent.Await(func() error {
		var notes []string
		for name, at := range want {
			// Only the kernel's files are read: the runtime may be stopped.
			s, files, err := n.cgroup(n.containerDir(ctr(name).Pod(), n.ctrs[ctr(name)].id))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if !sameList(s.CPUs, at.cpus) || at.mems != "" && !sameList(s.Mems, at.mems) {
				notes = append(notes, fmt.Sprintf("%s has CPUs %q and memory nodes %q, want %+v", name, s.CPUs, s.Mems, at))
			}
			if got := affinity(n, files); !sameList(got, at.cpus) {
				notes = append(notes, fmt.Sprintf("the process of %s may run on %q, want %q", name, got, at.cpus))
			}
		}
		return lines(notes)
	})
	if err != nil {
		t.Errorf("%s:\n%v", when, err)
		n.dumpAll(want)
		t.FailNow()
	}
}

// dumpAll logs the state of containers by agent, runtime and kernel, and ends the agent.
func (n *machine) dumpAll(want map[string]place) {
	n.t.Helper()
	for name := range want {
		id := n.ctrs[ctr(name)].id
		told, err := n.a.Explain("shop", name, "c")
		n.t.Logf("%s in the agent: %+v (%v)", name, told, err)
		ctx, cancel := call()
		st, err := n.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		cancel()
		n.t.Logf("%s in the runtime: %v (%v)", name, st.GetStatus().GetResources().GetLinux(), err)
		_, files, err := n.cgroup(n.containerDir(ctr(name).Pod(), id))
		n.t.Logf("%s in the kernel: %q (%v)", name, files, err)
	}
	n.a.Dump()
}
