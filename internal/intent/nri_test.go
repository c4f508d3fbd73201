package intent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

func readOf(annotations map[string]string) *Pod {
	return Read(&lifecycle.Pod{Annotations: annotations}, nil, Dialects())
}

// TestScopes: for each scope the newer key has priority, and a container's key over the pod's; a malformed
// text does not fall back to another key.
func TestScopes(t *testing.T) {
	t.Parallel()
	limit := func(n string) string { return "- {type: nofile, hard: " + n + ", soft: 1}" }
	keys := []string{
		"ulimits.noderesource.dev/container.a", "ulimits.nri.containerd.io/container.a", "ulimits.noderesource.dev/pod",
		"ulimits.nri.containerd.io/pod", "ulimits.noderesource.dev", "ulimits.nri.containerd.io",
	}
	annotations := map[string]string{}
	for i := len(keys) - 1; i >= 0; i-- {
		annotations[keys[i]] = limit(string(rune('1' + i)))
		got := readOf(annotations).Ulimits.V.Of("a")
		if got.Key != keys[i] || len(got.V) != 1 || got.V[0].Hard != uint64(1+i) {
			t.Errorf("beside all that counts less, %s: %+v", keys[i], got)
		}
	}
	annotations[keys[0]] = "no list"
	p := readOf(annotations)
	if got := p.Ulimits.V.Of("a"); got.IsSet() || len(p.Problems) != 1 || p.Problems[0].Key != keys[0] {
		t.Errorf("malformed: %+v, %v", got, p.Problems)
	}
	if got := p.Ulimits.V.Of("b"); got.Key != keys[2] {
		t.Errorf("another container: %+v", got)
	}
}

// TestInjectedTexts: the same for devices and interfaces.
func TestInjectedTexts(t *testing.T) {
	t.Parallel()
	of := func(p *Pod) string {
		var all []string
		for _, d := range p.DeviceNodes.V.Of("a").V {
			all = append(all, lifecycle.Value{Field: lifecycle.DeviceNode, Device: &d}.String())
		}
		for _, d := range p.NetDevices.V.Of("a").V {
			all = append(all, d.Host+" as "+d.Name)
		}
		for _, d := range p.PodInterfaces.V {
			all = append(all, d.Host+" into the pod as "+d.Name)
		}
		for _, m := range p.Mounts.V.Of("a").V {
			all = append(all, fmt.Sprint(m.Source, " at ", m.Destination, " ", m.Writable))
		}
		return strings.Join(append(all, p.CDIDevices.V.Of("a").V...), "; ")
	}
	for _, c := range []struct{ key, text, want, wrong string }{
		{NRIDevices, "- path: /dev/nri-null\n  type: c\n  major: 1\n  minor: 3\n  file_mode: 0666\n  uid: 1\n  gid: 2", "/dev/nri-null c 1:3", ""},
		{nriOldDevices, `[{"path":"/dev/d","type":"u","major":1,"minor":3},{"path":"/dev/e/f","type":"b","major":8,"minor":0}]`, "/dev/d c 1:3; /dev/e/f b 8:0", ""},
		{NRIDevices, "- {path: /dev, type: c}", "", "not a path below /dev"},
		{NRIDevices, "- {path: /tmp/x, type: c}", "", "not a path below /dev"},
		{NRIDevices, "- {path: /dev/x, type: p}", "", "is not c or b"},
		{NRIDevices, "- {path: /dev/x, type: c, major: 4096}", "", "not a valid device number"},
		{NRIDevices, "[{path: /dev/x, type: c}, {path: /dev/x, type: c}]", "", "listed twice"},
		{NRIDevices, "- {path: /dev/x, type: c, fileMode: 1}", "", "unknown key"},
		{NRIMounts, "- source: /data\n  destination: /mnt\n  type: bind\n  options: [bind, ro]\n- {source: /w, destination: /v, options: [rw]}", "/data at /mnt false; /w at /v true", ""},
		{nriOldMounts, "- {source: data, destination: /mnt}", "", "not an absolute path in its shortest form"},
		{NRIMounts, "- {source: /data, destination: /}", "", "or is in /dev, /proc or /sys"},
		{NRIMounts, "- {source: /data, destination: /proc/1}", "", "or is in /dev, /proc or /sys"},
		{NRIMounts, "- {source: tmpfs, destination: /x, type: tmpfs}", "", "only type bind"},
		{NRIMounts, "- {source: /d, destination: /x, options: [ro, rw]}", "", "both ro and rw"},
		{NRIMounts, "[{source: /d, destination: /x}, {source: /e, destination: /x}]", "", "listed twice"},
		{NRICDI, "- vendor.com/net=nic0\n- vendor.com/gpu=0:1", "vendor.com/net=nic0; vendor.com/gpu=0:1", ""},
		{nriOldCDI, "[vendor.com/net]", "", "not the name of a CDI device"},
		{NRICDI, "[a.b/c=d, a.b/c=d]", "", "listed twice"},
		{NRINetDevices, "- {hostIf: eth1, name: net0}\n- {hostIf: eth2}", "eth1 as net0; eth2 as eth2", ""},
		{nriOldNetDevices, "[{hostIf: eth1, name: a}, {hostIf: eth2, name: a}]", "", "listed twice"},
		{NRINetDevices, "- {hostIf: eth0/../x}", "", "not the name of a network interface"},
		{NRINetDevices, "- {hostIf: a23456789012345b}", "", "not the name of a network interface"},
		{NRINetDevices, "- {hostIf: a23456789012345}", "a23456789012345 as a23456789012345", ""},
		{NRINetDevices, "- {hostIf: eth0, name: a23456789012345b}", "", "not the name of a network interface"},
		{NRINetDevices, "- {hostIf: eth0, name: ../x}", "", "not the name of a network interface"},
		{NRINetDevices, "- {name: eth0}", "", "not the name of a network interface"},
		{NRINetDevices, "- {hostIf: eth0, name: lo}", "", "lo cannot be moved, because every network namespace has its own lo"},
		{NRINetDevices, "[{hostIf: eth1, name: a}, {hostIf: eth1, name: b}]", "", "listed twice"},
		{NRIPodNetwork, "- {name: eth1, new_name: net0, address: 192.0.2.1, prefix: 24, mtu: 1400}\n- {name: eth2}", "eth1 into the pod as net0; eth2 into the pod as eth2", ""},
		{NRIPodNetwork + "/pod", "- {name: eth1}", "eth1 into the pod as eth1", ""},
		{nriOldPodNetwork, "- name: eth1", "eth1 into the pod as eth1", ""},
		{nriOldPodNetwork + "/pod", `[{"name": "eth1"}]`, "eth1 into the pod as eth1", ""},
		{NRIPodNetwork + "/container.a", "- {name: eth1}", "", "it cannot name one container"},
		{NRIPodNetwork, "- {hostIf: eth1}", "", "unknown key"},
		{NRIPodNetwork, "- {new_name: net0}", "", "not the name of a network interface"},
		{NRIPodNetwork, "- {name: eth1, new_name: lo}", "", "lo cannot be moved, because every network namespace has its own lo"},
		{NRIPodNetwork, "- {name: eth1, mtu: high}", "", "malformed"},
		{NRIPodNetwork, "- {name: eth1, prefix: 99999999999999999999}", "", "malformed"},
		{nriOldPodNetwork, "[{name: eth1, new_name: a}, {name: eth2, new_name: a}]", "", "listed twice"},
		{nriOldPodNetwork, "[" + strings.Repeat("{name: eth1},", maxInjected+1) + "]", "", "more than 64 interfaces"},
		{NRINetDevices, "[" + strings.Repeat("{hostIf: eth1},", maxInjected+1) + "]", "", "more than 64 interfaces"},
	} {
		p := readOf(map[string]string{c.key: c.text})
		wrong := ""
		if len(p.Problems) > 0 {
			wrong = p.Problems[0].Reason
		}
		if got := of(p); got != c.want || (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %s: %q and %q, want %q and %q", c.key, c.text, got, wrong, c.want, c.wrong)
		}
	}
}

// TestProcessTexts: how the plugins' texts are parsed, and which problems are reported.
func TestProcessTexts(t *testing.T) {
	t.Parallel()
	of := func(p *Pod) string {
		var all []string
		for _, r := range p.Ulimits.V.Of("a").V {
			all = append(all, r.Type+" "+r.Text())
		}
		if s := p.IOPriority.V.Of("a"); s.IsSet() {
			all = append(all, s.V.Text())
		}
		if s := p.Scheduler.V.Of("a"); s.IsSet() {
			all = append(all, s.V.Text())
		}
		if s := p.MemPolicy.V.Of("a"); s.IsSet() {
			all = append(all, s.V.Text())
		}
		if s := p.MemoryRequest.V.Of("a"); s.IsSet() {
			all = append(all, s.V.String())
		}
		for _, name := range sortedKeys(p.Sysctls.V.Of("a").V) {
			all = append(all, name+"="+p.Sysctls.V.Of("a").V[name])
		}
		return strings.Join(all, "; ")
	}
	for _, c := range []struct{ key, text, want, wrong string }{
		{NRIUlimits, "- type: RLIMIT_MEMLOCK\n  hard: 987654\n  soft: 645321\n- type: nofile\n  hard: 18446744073709551615\n  soft: 0\n", "RLIMIT_MEMLOCK 645321:987654; RLIMIT_NOFILE 0:18446744073709551615", ""},
		{NRIUlimits, `[{"type":"Rlimit_Core","hard":1,"soft":1}]`, "RLIMIT_CORE 1:1", ""},
		{NRIUlimits, "- {type: nofile, hard: 1, soft: 2}", "", "above the hard limit"},
		{NRIUlimits, "- {type: files, hard: 1}", "", "not a process limit of Linux"},
		{NRIUlimits, "- {type: nofile, hard: -1}", "", "malformed"},
		{NRIUlimits, "- {type: nofile, hard: 18446744073709551616}", "", "malformed"},
		{NRIUlimits, "- {type: nofile, hard: 1}\n- {type: NOFILE, hard: 1}", "", "listed twice"},
		{NRIUlimits, "- {type: nofile, hard: 1, hard: 2}", "", "malformed"},
		{NRIUlimits, "- {type: nofile, hard: 1, maximum: 2}", "", "unknown key"},
		{NRIUlimits, "- &a {type: nofile, hard: 1}\n- *a", "", "anchors"},
		{NRIUlimits, "- " + strings.Repeat("a", maxYAMLBytes), "", "at most 2048 bytes"},
		{NRIIOPriority, "class: IOPRIO_CLASS_BE\npriority: 4", "IOPRIO_CLASS_BE 4", ""},
		{nriOldIOPriority, "{class: ioprio_class_idle}", "IOPRIO_CLASS_IDLE 0", ""},
		{NRIIOPriority, "class: BE", "", "is not a class"},
		{NRIIOPriority, "{class: IOPRIO_CLASS_BE, priority: 8}", "", "want 0 to 7"},
		{NRIIOPriority, "{class: IOPRIO_CLASS_NONE, priority: 1}", "", "has no priority"},
		{NRIScheduler, "policy: SCHED_FIFO\npriority: 10\nflags: [SCHED_FLAG_RESET_ON_FORK]", "SCHED_FIFO priority=10 flags=SCHED_FLAG_RESET_ON_FORK", ""},
		{nriOldScheduler, "{policy: SCHED_OTHER, nice: -5}", "SCHED_OTHER nice=-5", ""},
		{NRIScheduler, "{policy: SCHED_DEADLINE, runtime: 10000, deadline: 30000, period: 30000}", "SCHED_DEADLINE runtime=10000 deadline=30000 period=30000", ""},
		{NRIScheduler, "{policy: SCHED_DEADLINE, runtime: 10000, deadline: 3000}", "", "a deadline not below the runtime, and a period not below the deadline"},
		{NRIScheduler, "{policy: SCHED_DEADLINE, runtime: 1000, deadline: 3000}", "", "at least 1024 ns"},
		{NRIScheduler, "{policy: SCHED_FIFO}", "", "want 1 to 99"},
		{NRIScheduler, "{policy: SCHED_FIFO, priority: 1, nice: 1}", "", "takes only a priority"},
		{NRIScheduler, "{policy: SCHED_IDLE, priority: 1}", "", "takes only a nice value"},
		{NRIScheduler, "{policy: SCHED_OTHER, nice: 20}", "", "want -20 to 19"},
		{NRIScheduler, "{policy: SCHED_ISO}", "", "not a policy of Linux"},
		{NRIScheduler, "{policy: SCHED_OTHER, flags: [SCHED_FLAG_UTIL_CLAMP_MIN]}", "", "is not supported"},
		{NRIMemPolicy, "mode: MPOL_BIND\nnodes: 1,0\nflags: [MPOL_F_STATIC_NODES]", "MPOL_BIND nodes=0-1 flags=MPOL_F_STATIC_NODES", ""},
		{nriOldMemPolicy, "mode: MPOL_WEIGHTED_INTERLEAVE\nnodes: '0-3'", "MPOL_WEIGHTED_INTERLEAVE nodes=0-3", ""},
		{NRIMemPolicy, "mode: MPOL_LOCAL", "MPOL_LOCAL", ""},
		{NRIMemoryPolicyClass, "gold", "gold", ""},
		{NRIMemoryPolicyClass, strings.Repeat("a", 65), "", "longer than 64 bytes"},
		{NRIMemoryPolicyText, "{mode: MPOL_INTERLEAVE, nodes: max-dist:19, flags: [MPOL_F_STATIC_NODES]}", "MPOL_INTERLEAVE nodes=max-dist:19 flags=MPOL_F_STATIC_NODES", ""},
		{NRIMemoryPolicyText, "{mode: MPOL_BIND, nodes: '3,1-2'}", "MPOL_BIND nodes=1-3", ""},
		{NRIMemoryPolicyText, "{mode: MPOL_LOCAL, nodes: all}", "", "cannot have nodes"},
		{NRIMemoryPolicyText, "{mode: MPOL_BIND, nodes: max-dist:256}", "", "is not valid: use a list such as 0-3"},
		{NRIMemoryPolicyText, "{mode: MPOL_BIND, nodes: 0-4000000000}", "", "is above"},
		{NRIMemPolicy, "mode: MPOL_PREFERRED", "MPOL_PREFERRED", ""},
		{NRIMemPolicy, "{mode: MPOL_LOCAL, nodes: '0'}", "", "cannot have nodes"},
		{NRIMemPolicy, "{mode: MPOL_BIND}", "", "needs nodes"},
		{NRIMemPolicy, "{mode: bind, nodes: '0'}", "", "not a mode"},
		{NRIMemPolicy, "{mode: MPOL_BIND, nodes: '1-'}", "", "nodes:"},
		{NRIMemPolicy, "{mode: MPOL_INTERLEAVE, nodes: '0', flags: [MPOL_F_NUMA_BALANCING]}", "", "can only be used with"},
		{NRIMemPolicy, "{mode: MPOL_BIND, nodes: '0', flags: [MPOL_F_STATIC_NODES, MPOL_F_RELATIVE_NODES]}", "", "both static and relative"},
		{NRIMemPolicy, "{mode: MPOL_PREFERRED, flags: [MPOL_F_STATIC_NODES]}", "", "needs nodes"},
		{NRISysctl, "net.core.somaxconn: 1024\nnet.ipv4.ip_local_port_range: \"1024 65000\"", "net.core.somaxconn=1024; net.ipv4.ip_local_port_range=1024 65000", ""},
		{NRISysctl, "net/core/somaxconn: 1", "", "not the name"},
		{NRISysctl, "-net.core.somaxconn: 1", "", "not the name"},
		{NRISysctl, "net..core: 1", "", "not the name"},
		{NRISysctl, `{"net.core.somaxconn": "1\n2"}`, "", "printable"},
		{NRISysctl, "net.core.somaxconn: [1]", "", "malformed"},
	} {
		p := readOf(map[string]string{c.key + "/pod": c.text})
		var said []string
		for _, q := range p.Problems {
			said = append(said, q.Reason)
		}
		if d := cmp.Diff(c.want, of(p)); d != "" {
			t.Errorf("%s: %q: %s, reported %q", c.key, c.text, d, said)
		}
		if wrong := strings.Join(said, "; "); (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q: reported %q, want %q", c.key, c.text, wrong, c.wrong)
		}
	}
}

// FuzzNRI: every text of a plugin's key is either parsed completely or reported.
func FuzzNRI(f *testing.F) {
	for _, text := range []string{
		"", "[]", "{}", "- {type: nofile, hard: 1, soft: 1}", "class: IOPRIO_CLASS_BE", "policy: SCHED_FIFO\npriority: 1", "mode: MPOL_BIND\nnodes: 0-1",
		"net.core.somaxconn: 1", "- - - -", "? a", "!!binary x", "a: !!float 1", "%YAML 1.1\n---\n- a", "- {path: /dev/x, type: c, major: 1, minor: 3}",
		"- {source: /a, destination: /b}", "- vendor.com/class=0", "- {name: eth1, new_name: net0, address: 192.0.2.1, prefix: 24, mtu: 1400}", "\x00", "'", "{a: {b: [c, d]}}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		annotations := map[string]string{}
		for _, r := range nriScopedKeys {
			annotations[r.key+"/container.a"] = text
		}
		annotations[NRIPodNetwork] = text
		p := readOf(annotations)
		for _, r := range p.Ulimits.V.Of("a").V {
			if again, ok := lifecycle.ParseRlimit(r.Type, r.Text()); !ok || again != r {
				t.Errorf("limit %+v", r)
			}
		}
		if s := p.Scheduler.V.Of("a"); s.IsSet() {
			if again, ok := lifecycle.ParseScheduler(s.V.Text()); !ok || again.Text() != s.V.Text() {
				t.Errorf("policy %+v", s.V)
			}
		}
		if m := p.MemPolicy.V.Of("a"); m.IsSet() {
			if again, ok := lifecycle.ParseMemoryPolicy(m.V.Text()); !ok || again.Text() != m.V.Text() {
				t.Errorf("memory policy %+v", m.V)
			}
		}
		for name, value := range p.Sysctls.V.Of("a").V {
			if strings.ContainsAny(name+value, "\x00\n/") && strings.ContainsAny(name, "/\x00\n") {
				t.Errorf("parameter %q = %q", name, value)
			}
		}
	})
}
