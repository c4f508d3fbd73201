package hooks_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

const assigned = "scheduling.koordinator.sh/resource-status"

// labelled returns a pod of one container with a Koordinator class; with cpus it owns these.
func labelled(name, class, cpus string) *scenario.Run {
	shares := uint64(1024)
	r := &scenario.Run{
		Pod:        scenario.Pod{Namespace: "shop", Name: name, QoS: "Burstable", Labels: map[string]string{"koordinator.sh/qosClass": class}},
		Containers: []scenario.Container{{Name: "c", Resources: scenario.Resources{Shares: &shares}}},
	}
	if cpus != "" {
		r.Pod.QoS, r.Pod.Annotations = "Guaranteed", map[string]string{assigned: fmt.Sprintf(`{"cpuset":%q}`, cpus)}
		ids, _ := topology.ParseList(cpus)
		shares = uint64(len(ids)) * 1024 // the container requests as many CPUs as it owns
		quota := int64(len(ids)) * 100_000
		r.Containers[0].Resources.Quota = &quota
	}
	return r
}

func ctr(name string) scenario.Ref { return scenario.Ref("shop/" + name + "/c") }

// crowd runs an owner, a container of the shared pool, a batch container and one without requests.
func crowd(t *testing.T, n *machine, owned string) {
	t.Helper()
	for _, r := range []*scenario.Run{labelled("web", "LS", ""), labelled("silent", "", ""), labelled("db", "LSR", owned)} {
		if err := n.run(r); err != nil {
			t.Fatal(err)
		}
	}
}

// wantCPUs waits until the containers run on these CPUs, by the effective list of their cgroup, and by the affinity of
// their process, which the kernel's scheduler uses.
func wantCPUs(t *testing.T, n *machine, when string, want map[string]string) {
	t.Helper()
	err := agent.Await(func() error {
		var notes []string
		for name, cpus := range want {
			s, files, _, err := n.state(ctr(name))
			if err != nil {
				return err
			}
			if !sameList(s.CPUs, cpus) {
				notes = append(notes, fmt.Sprintf("%s has %q, want %q", name, s.CPUs, cpus))
			}
			if got := affinity(n, files); !sameList(got, cpus) {
				notes = append(notes, fmt.Sprintf("the process of %s may run on %q, want %q", name, got, cpus))
			}
		}
		return lines(notes)
	})
	if err != nil {
		t.Fatalf("%s:\n%v", when, err)
	}
}

// affinity returns the affinity of the first process of a cgroup.
func affinity(n *machine, files vm.Files) string {
	pid, _, _ := strings.Cut(string(files["cgroup.procs"]), "\n")
	if _, err := strconv.Atoi(pid); err != nil {
		return ""
	}
	status, err := n.m.Files("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status["/proc/"+pid+"/status"])) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	return ""
}

// TestLifecycle plays with the same containers, one after another: restarts, updates of the kubelet, a new
// configuration, and CPUs that go offline and come back.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	for _, g := range versions() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			if g.name != alwaysLifecycle {
				testTurns.Play(t)
			}
			g.Topology = vm.FourNodes
			n := start(t, g.Guest, nil)
			crowd(t, n, "2-3")
			wantCPUs(t, n, "at first", map[string]string{"db": "2-3", "web": "0-1,4-7", "silent": "0-1,4-7"})
			for _, part := range []struct {
				name string
				play func(*testing.T, *machine)
			}{{"restarts", restarts}, {"update", update}, {"reload", reload}, {"offline", offline}} {
				if !t.Run(part.name, func(t *testing.T) { part.play(t, n.of(t)) }) {
					return // the next part needs the state of this one
				}
			}
		})
	}
}

// restarts kills agent and runtime in turn. No container may move.
func restarts(t *testing.T, n *machine) {
	t.Helper()
	p := &player{machine: n}
	for _, s := range []scenario.Step{{Restart: "agent"}, {Restart: "runtime"}} {
		before := p.snapshot(&s)
		if err := p.act(&s); err != nil {
			t.Fatal(err)
		}
		if err := lines(moved(s.Want, before, p.snapshot(&s))); err != nil {
			t.Error(err)
		}
		wantCPUs(t, n, "after a restart of the "+s.Restart, map[string]string{"db": "2-3", "web": "0-1,4-7", "silent": "0-1,4-7"})
	}
}

// update sends a kubelet's updates of containers' resources.
func update(t *testing.T, n *machine) {
	t.Helper()
	asks := map[string]struct {
		shares uint64
		quota  int64 // requested
		has    int64 // afterwards
	}{"db": {2560, 250_000, effective.Unlimited}, "web": {512, 50_000, 50_000}} // the request still pays for db's CPUs
	for name, a := range asks {
		if err := n.update(ctr(name), scenario.Resources{Shares: &a.shares, Quota: &a.quota, CPUs: "0-7"}); err != nil {
			t.Fatal(err)
		}
	}
	wantCPUs(t, n, "after an update", map[string]string{"db": "2-3", "web": "0-1,4-7", "silent": "0-1,4-7"})
	for name, a := range asks {
		if s, _, _, err := n.state(ctr(name)); err != nil || s.Quota != a.has || !hasShares(s, a.shares) {
			t.Errorf("%s after an update: %+v (%v), want quota %d and %d shares", name, s, err, a.has, a.shares)
		}
	}
}

// reload configures other pools, and then the old ones again.
func reload(t *testing.T, n *machine) {
	t.Helper()
	for _, c := range []struct{ keys, web string }{{`{"pools":{"reserved":"0","shared":"1,4-5"}}`, "1,4-5"}, {`{}`, "0-1,4-7"}} {
		if err := n.a.Reconfigure(json.RawMessage(c.keys)); err != nil {
			t.Fatal(err)
		}
		wantCPUs(t, n, "with the configuration "+c.keys, map[string]string{"db": "2-3", "web": c.web, "silent": "0-1,4-7"})
	}
}

// offline takes CPUs offline and online again: an owned one, and one of the shared pool. Meanwhile containers can be
// created and no other container gets an owned CPU. In the end all is as before.
func offline(t *testing.T, n *machine) {
	t.Helper()
	n.m.Sh("echo 0 >/sys/devices/system/cpu/cpu3/online")
	wantCPUs(t, n, "without CPU 3", map[string]string{"db": "2", "web": "0-1,4-7", "silent": "0-1,4-7"})
	n.m.Sh("echo 0 >/sys/devices/system/cpu/cpu6/online")
	wantCPUs(t, n, "without CPUs 3 and 6", map[string]string{"db": "2", "web": "0-1,4-5,7", "silent": "0-1,4-5,7"})
	if err := n.run(labelled("late", "LS", "")); err != nil {
		t.Fatalf("a pod while CPUs are offline: %v", err)
	}
	wantCPUs(t, n, "made while CPUs are offline", map[string]string{"late": "0-1,4-5,7"})
	n.m.Sh("for c in 3 6; do echo 1 >/sys/devices/system/cpu/cpu$c/online; done")
	after := map[string]string{"db": "2-3", "web": "0-1,4-7", "silent": "0-1,4-7", "late": "0-1,4-7"}
	if n.m.Guest.CgroupV1 {
		// Version 1 removes an offline CPU from every cpuset permanently, including kubepods.
		after = map[string]string{"db": "2", "web": "0-1,4-5,7", "silent": "0-1,4-5,7", "late": "0-1,4-5,7"}
	}
	wantCPUs(t, n, "with all CPUs again", after)
}

// firstShapes are the machines of TestFirstInstruction.
var firstShapes = []vm.Topology{vm.Threads, vm.FarMemory}

// TestFirstInstruction creates containers while others own CPUs, on machines with threads and with memory-only NUMA
// nodes.
func TestFirstInstruction(t *testing.T) {
	t.Parallel()
	for _, shape := range firstShapes {
		t.Run(shape.Name, func(t *testing.T) {
			t.Parallel()
			testTurns.Play(t)
			n := start(t, vm.Guest{Topology: shape}, nil)
			last := shape.CPUs() - 1
			crowd(t, n, strconv.Itoa(last))
			rest := fmt.Sprintf("0-%d", last-1)
			if err := n.run(labelled("late", "LS", "")); err != nil {
				t.Fatal(err)
			}
			for name, cpus := range map[string]string{"db": strconv.Itoa(last), "late": rest} {
				if got := n.ctrs[ctr(name)].first; !sameList(got.Affinity, cpus) || got.MemsAllowed == "" {
					t.Errorf("%s first saw affinity %s and memory nodes %s, want CPUs %s", name, got.Affinity, got.MemsAllowed, cpus)
				}
			}
			wantCPUs(t, n, "then", map[string]string{"db": strconv.Itoa(last), "late": rest, "web": rest, "silent": rest})
		})
	}
}

// TestDaemonReload lets systemd write its values of every cgroup again, and start a unit for which it checks
// controllers.
func TestDaemonReload(t *testing.T) {
	t.Parallel()
	testTurns.Play(t)
	n := start(t, vm.Guest{Topology: vm.FourNodes, Systemd: true}, nil)
	crowd(t, n, "2-3")
	want := map[string]string{"db": "2-3", "web": "0-1,4-7", "silent": "0-1,4-7"}
	wantCPUs(t, n, "at first", want)
	before, _, _, err := n.state("shop/db")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"systemctl daemon-reload", "systemctl daemon-reexec", "systemctl set-property --runtime kubepods.slice CPUWeight=50"} {
		n.m.Sh(command)
		wantCPUs(t, n, "after "+command, want)
		s, _, _, err := n.state(ctr("db"))
		if err != nil || s.Quota != effective.Unlimited {
			t.Errorf("after %s the owner has %+v (%v), want no quota", command, s, err)
		}
		// systemd writes the quota of its property; the agent detects that as drift.
		err = agent.Await(func() error {
			pod, _, _, err := n.state("shop/db")
			if err == nil && (pod.Quota != before.Quota || pod.Shares != before.Shares) {
				err = fmt.Errorf("the owner's pod has %+v, before %+v", pod, before)
			}
			return err
		})
		if err != nil {
			t.Errorf("after %s: %v", command, err)
		}
	}
}

// versions returns the cgroup versions and drivers: only version 2, or all with TRIMTAB_SOAK.
func versions() []variation {
	if soak() {
		return guests()
	}
	return guests()[:2]
}
