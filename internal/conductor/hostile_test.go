package conductor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/clock"
)

// attack is a pod whose author wants more than the pod was given. By default it has a limit and
// a request of two CPUs, in a namespace that no rule names.
type attack struct {
	name        string
	pod         string // its pod's name; default "p"
	namespace   string
	parent      string // "besteffort", "burstable" or "" for Guaranteed
	labels      map[string]string
	annotations map[string]string
	record      string // forged, on the container
	container   string
	shares      uint64
	quota       int64
	want        string // the expected report; "" for none
}

func labelled(class string) map[string]string { return map[string]string{intent.KoordQoSClass: class} }
func assigned(text string) map[string]string {
	return map[string]string{intent.KoordResourceStatus: text}
}
func cpuset(list string) map[string]string   { return assigned(fmt.Sprintf(`{"cpuset":%q}`, list)) }
func extended(text string) map[string]string { return map[string]string{intent.KoordExtended: text} }
func batchOf(amount string) map[string]string {
	return extended(fmt.Sprintf(`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":%[1]s},"limits":{"kubernetes.io/batch-cpu":%[1]s,"kubernetes.io/batch-memory":%[1]s}}}}`, amount))
}
func katalyst(level, enhancement string) map[string]string {
	return map[string]string{intent.KatalystQoSLevel: level, intent.KatalystCPU: enhancement}
}

func rubik(more ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(more); i += 2 {
		out["volcano.sh/"+more[i]] = more[i+1]
	}
	return out
}

// nri is an annotation of NRI's plugins.
func nri(key, text string) map[string]string { return map[string]string{key: text} }

func devices(text string) map[string]string { return map[string]string{intent.KoordDevices: text} }

func manyContainers(n int) string {
	var b strings.Builder
	b.WriteString(`{"containers":{`)
	for i := range n {
		fmt.Fprintf(&b, `"c%d":{"limits":{"kubernetes.io/batch-cpu":"1"}},`, i)
	}
	return b.String() + `"a":{}}}`
}

func manyNodes(n int) string {
	return `{"numaNodeResources":[` + strings.Repeat(`{"node":-1,"resources":{"cpu":1}},`, n) + `{"node":0,"resources":{}}]}`
}

func attacks() []attack {
	everything := map[string]string{
		intent.KoordResourceStatus: `{"cpuset":"4-5","numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}`,
		intent.KoordExtended:       `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"64000"}}}}`,
		intent.KoordDevices:        `{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"1Gi","koordinator.sh/gpu-memory-ratio":"5"}}]}`,
	}
	hami := map[string]string{intent.KoordQoSClass: "BE", intent.KoordGPUIsolation: "HAMi-core"}
	return []attack{
		{name: "CPUs of another pod", annotations: cpuset("2-3"), want: "owned by trusted/owner"},
		{name: "one CPU of another pod", annotations: cpuset("3-4"), want: "owned by trusted/owner"},
		{name: "a reserved CPU", annotations: cpuset("0-1"), want: "reserved by pools.reserved"},
		{name: "more CPUs than the limit", annotations: cpuset("1,4-5"), want: "3 CPUs are more than the pod's CPU limit of 2"},
		{name: "a high limit and no request", annotations: cpuset("4-7"), shares: 102, quota: 6400000, want: "4 CPUs are more than the pod's CPU request of 0.1, which pays for 0"},
		{name: "no limit", parent: "besteffort", shares: 2, quota: -1, annotations: cpuset("4"), want: "1 CPUs are more than the pod's CPU request of 0"},
		{name: "all CPUs", annotations: cpuset("0-7"), want: "are more than"},
		{name: "offline CPUs", annotations: cpuset("4094-4095"), want: "not online"},
		{name: "negative CPU", annotations: cpuset("-1"), want: "not a number"},
		{name: "huge range", annotations: cpuset("0-4000000000"), want: "is above"},
		{name: "int64 max", annotations: cpuset("9223372036854775807"), want: "is above"},
		{name: "exponent", annotations: cpuset("1e0"), want: "not a number"},
		{name: "hexadecimal", annotations: cpuset("0x4"), want: "not a number"},
		{name: "digits of another script", annotations: cpuset("４"), want: "not a number"},
		{name: "a path", annotations: cpuset("../../../../etc"), want: "not a number"},
		{name: "a newline", annotations: cpuset("4\n2-3"), want: "not a number"},
		{name: "a number for a list", annotations: assigned(`{"cpuset":4}`), want: "malformed JSON"},
		{name: "key twice", annotations: assigned(`{"cpuset":"4","cpuset":"2-3"}`), want: "duplicate"},
		{name: "nested key twice", annotations: extended(`{"containers":{"a":{"limits":{}},"a":{}}}`), want: "duplicate"},
		{name: "deep lists", annotations: assigned(strings.Repeat("[", 700)), want: "malformed JSON"},
		{name: "deep lists without end", annotations: assigned(strings.Repeat("[", 16000)), want: "too many values"},
		{name: "deep objects", annotations: assigned(strings.Repeat(`{"a":`, 12000) + "1" + strings.Repeat("}", 12000)), want: "longer than"},
		{name: "deep amount", annotations: assigned(`{"numaNodeResources":[{"node":1,"resources":{"cpu":` + strings.Repeat("[", 700) + strings.Repeat("]", 700) + `}}]}`), want: "not a quantity"},
		{name: "huge text", annotations: cpuset(strings.Repeat("4,", 1<<20)), want: "longer than"},
		{name: "huge JSON within bounds", annotations: assigned(`{"x":"` + strings.Repeat("x", 16000) + `","cpuset":[]}`), want: "malformed JSON"},
		{name: "many nodes", annotations: assigned(manyNodes(180)), want: moreProblems},
		{name: "a NUMA node of int64", annotations: assigned(`{"numaNodeResources":[{"node":-9223372036854775808,"resources":{"cpu":"1"}}]}`), want: "no such NUMA node"},
		{name: "a NUMA node of fractions", annotations: assigned(`{"numaNodeResources":[{"node":0.5,"resources":{"cpu":"1"}}]}`), want: "malformed JSON"},
		{name: "NUL behind JSON", annotations: assigned("{\"cpuset\":\"4\"}\x00"), want: "malformed JSON"},
		{name: "invalid UTF-8", annotations: assigned("{\"cpuset\":\"4\xff\"}"), want: "not a number"},

		{name: "class system", labels: labelled("SYSTEM"), want: "class/system: pods of namespace default"},
		{name: "bidi class", labels: labelled("LSR\u202e"), want: "not a QoS class"},
		{name: "wide class", labels: labelled("ＬＳＲ"), want: "not a QoS class"},
		{name: "NUL class", labels: labelled("LSR\x00"), want: "not a QoS class"},
		{name: "invalid class", labels: labelled("\xff\xfe"), want: "not a QoS class"},
		{name: "escape class", labels: labelled("\x1b[2J\x1b]0;owned\x07"), want: "not a QoS class"},
		{name: "key of other letters", annotations: map[string]string{"scheduling.k\u043eordinator.sh/resource-status": `{"cpuset":"4"}`}},
		{name: "key with a mark of direction", annotations: map[string]string{intent.KoordResourceStatus + "\u200e": `{"cpuset":"4"}`}},
		{name: "key in capitals", annotations: map[string]string{strings.ToUpper(intent.KoordResourceStatus): `{"cpuset":"4"}`}},

		{name: "limits lifted", labels: labelled("BE"), annotations: extended(`{"containers":{"a":{}}}`), want: "BestEffort pods"},
		{name: "limits lifted, Burstable", parent: "burstable", labels: labelled("BE"), annotations: batchOf(`"64000"`), want: "BestEffort pods"},
		{name: "hundreds of containers", labels: labelled("BE"), annotations: extended(manyContainers(180)), want: moreProblems},
		{name: "batch above int64", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`"9223372036854775808"`), want: "is above"},
		{name: "batch below int64", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`-9223372036854775809`), want: "is above"},
		{name: "batch with an endless exponent", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`1e999999999`), want: "not a quantity"},
		{name: "batch with a large exponent", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`"1e99"`), want: "is above"},
		{name: "batch as a fraction of nothing", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`"1/0"`), want: "not a quantity"},
		{name: "batch of an object", parent: "besteffort", shares: 2, quota: -1, labels: labelled("BE"), annotations: batchOf(`{"a":1}`), want: "not a quantity"},

		{name: "memory kept from others", namespace: "prod-1", annotations: rubik("preemptable", "false"), want: "memory-protection"},
		{name: "memory kept, by a label", labels: rubik("preemptable", "false"), want: "memory-protection"},
		{name: "a word for true", annotations: rubik("preemptable", "TRUE"), want: `want "true" or "false"`},
		{name: "true and a NUL", labels: rubik("preemptable", "true\x00"), want: `want "true" or "false"`},
		{name: "true of other letters", annotations: rubik("preemptable", "tru\u0435"), want: `want "true" or "false"`},
		{name: "preemptable where nothing is allowed", namespace: "locked", annotations: rubik("preemptable", "true"), want: "class/reclaimed: pods of namespace locked"},
		{name: "bursts where nothing is allowed", namespace: "locked", annotations: rubik("quota-burst-time", "200000"), want: "cpu-burst: pods of namespace locked"},
		{name: "a burst above int64", annotations: rubik("quota-burst-time", "9223372036854775808"), want: "want microseconds"},
		{name: "a burst below nothing", annotations: rubik("quota-burst-time", "-200000"), want: "want microseconds"},
		{name: "a burst of the whole kernel", annotations: rubik("quota-burst-time", "17592186044416"), want: "want microseconds"},
		{name: "two lines of bursts", annotations: rubik("quota-burst-time", "1\n200000"), want: "want microseconds"},
		{name: "a disk by path", annotations: rubik("blkio-limit", `{"device_read_bps":[{"device":"/dev/../../etc","value":"1"}]}`), want: "is not the name of a disk"},
		{name: "disk limits of nothing", annotations: rubik("blkio-limit", `{"device_read_bps":[{"device":"sda","value":"-1"}]}`), want: "is not a limit"},
		{name: "disk limits in deep lists", annotations: rubik("blkio-limit", strings.Repeat("[", 700)), want: "malformed JSON"},
		{name: "a cache that leads elsewhere", annotations: rubik("cache-limit", "../../low"), want: "want low, middle"},

		{name: "device by path", annotations: devices(`{"gpu":[{"minor":"../../sda"}]}`), want: "malformed JSON"},
		{name: "negative minor", annotations: devices(`{"gpu":[{"minor":-1}]}`), want: "minor number"},
		{name: "huge minor", annotations: devices(`{"gpu":[{"minor":1099511627776}]}`), want: "minor number"},
		{name: "hundreds of minors", annotations: devices(`{"gpu":[` + strings.Repeat(`{"minor":0},`, 300) + `{"minor":0}]}`), want: "minor number"},

		{name: "whole NUMA nodes", annotations: katalyst("dedicated_cores", `{"numa_binding":"true","numa_exclusive":"true"}`), want: "numa-exclusive: pods of namespace default"},
		{name: "a NUMA node alone", annotations: katalyst("shared_cores", `{"numa_binding":"true","numa_share":"false"}`), want: "numa-exclusive: pods of namespace default"},
		{name: "NUMA nodes there are none of", annotations: katalyst("dedicated_cores", `{"numa_binding":"true","katalyst.kubewharf.io/numa_ids":"0-4000000000"}`), want: "is above"},
		{name: "more NUMA nodes than there can be", annotations: katalyst("dedicated_cores", `{"numa_binding":"true","katalyst.kubewharf.io/numa_number":"1e9"}`), want: "want a number from 1 to 64"},
		{name: "the system's cores", annotations: katalyst("system_cores", `{"cpuset_pool":"reserve"}`), want: "class/system: pods of namespace default"},
		{name: "the reclaimed pool by name", annotations: katalyst("shared_cores", `{"cpuset_pool":"reclaim"}`), want: "the agent uses this pool itself"},
		{name: "a pool named as a path", annotations: katalyst("shared_cores", `{"cpuset_pool":"../../system.slice"}`), want: "not a name"},
		{name: "a pool named without end", annotations: katalyst("shared_cores", `{"cpuset_pool":"`+strings.Repeat("a", 16000)+`"}`), want: "not a name"},
		{name: "enhancements that are no strings", annotations: katalyst("shared_cores", `{"numa_binding":true}`), want: "malformed JSON"},
		{name: "a level of other letters", annotations: katalyst("dedicated_c\u043eres", `{}`), want: "not a QoS level"},

		{name: "limits without end", annotations: nri("ulimits.noderesource.dev", "[{type: memlock, hard: 18446744073709551615, soft: 18446744073709551615}]"), want: "ulimits: pods of namespace default"},
		{name: "limits of a container, by the old key", annotations: nri("ulimits.nri.containerd.io/container.a", "- {type: RLIMIT_RTPRIO, hard: 99, soft: 99}"), want: "ulimits: pods of namespace default"},
		{name: "limits that are anchors", annotations: nri("ulimits.noderesource.dev", "a: &a [x]\nb: [*a, *a]"), want: "anchors"},
		{name: "limits above 64 bits", annotations: nri("ulimits.noderesource.dev", "- {type: nofile, hard: 1e400, soft: 1}"), want: "malformed"},
		{name: "limits in deep YAML", annotations: nri("ulimits.noderesource.dev", strings.Repeat("- ", 1000)), want: "too many values"},
		{name: "limits of a path", annotations: nri("ulimits.noderesource.dev", "- {type: ../../nofile, hard: 1}"), want: "not a limit of Linux"},
		{name: "disks before all others", annotations: nri("io-priority.noderesource.dev", "class: IOPRIO_CLASS_RT"), want: "io-priority: pods of namespace default"},
		{name: "disks before all others, by the old key", annotations: nri("io-priority.nri.io/container.a", "class: IOPRIO_CLASS_RT"), want: "io-priority: pods of namespace default"},
		{name: "CPUs before all others", annotations: nri("scheduling-policy.noderesource.dev", "{policy: SCHED_FIFO, priority: 99}"), want: "scheduler: pods of namespace default"},
		{name: "CPUs by deadlines", annotations: nri("scheduling-policy.nri.io/pod", "{policy: SCHED_DEADLINE, runtime: 999999, deadline: 1000000}"), want: "scheduler: pods of namespace default"},
		{name: "a policy that Linux has not", annotations: nri("scheduling-policy.noderesource.dev", "policy: SCHED_EXT"), want: "not a policy of Linux"},
		{name: "memory of another node", annotations: nri("memory-policy.noderesource.dev", "{mode: MPOL_BIND, nodes: '1'}"), want: "memory-policy: pods of namespace default"},
		{name: "memory of nodes without end", annotations: nri("memory-policy.nri.io", "{mode: MPOL_BIND, nodes: 0-4000000000}"), want: "is above"},
		{name: "parameters of the pod", annotations: nri("sysctl.noderesource.dev", "net.ipv4.ip_unprivileged_port_start: 0"), want: "sysctl: pods of namespace default"},
		{name: "parameters of the node", annotations: nri("sysctl.noderesource.dev/container.a", "kernel.core_pattern: '|/bin/sh'"), want: "sysctl: pods of namespace default"},
		{name: "parameters by a path", annotations: nri("sysctl.noderesource.dev", "../../kernel/core_pattern: x"), want: "is not the name"},
		{name: "parameters where nothing is allowed", namespace: "locked", annotations: nri("sysctl.noderesource.dev", "net.ipv4.tcp_syncookies: 0"), want: "sysctl: pods of namespace locked"},
		{name: "the node's memory", annotations: nri("devices.noderesource.dev", "- {path: /dev/mem, type: c, major: 1, minor: 1}"), want: "device-nodes: pods of namespace default"},
		{name: "the node's disk, by the old key", annotations: nri("devices.nri.io/container.a", "- {path: /dev/null, type: b, major: 8, minor: 0, file_mode: 0666}"), want: "device-nodes: pods of namespace default"},
		{name: "devices out of /dev", annotations: nri("devices.noderesource.dev/pod", "- {path: /dev/../etc/passwd, type: c, major: 1, minor: 3}"), want: "is not a path below /dev"},
		{name: "a device with set-user-ID", annotations: nri("devices.noderesource.dev", "- {path: /dev/x, type: c, major: 1, minor: 3, file_mode: 04777}"), want: "is above 777"},
		{name: "devices of negative numbers", annotations: nri("devices.noderesource.dev", "- {path: /dev/x, type: c, major: -1, minor: 3}"), want: "not numbers of a device"},
		{name: "devices without end", annotations: nri("devices.noderesource.dev", "["+strings.Repeat(`{"path":"/dev/x"},`, 99)+`{"path":"/dev/x"}]`), want: "more than 64 devices"},
		{name: "the host's files", annotations: nri("mounts.noderesource.dev", "- {source: /, destination: /host, type: bind, options: [rbind, rw]}"), want: "mounts: pods of namespace default"},
		{name: "the host's files, by the old key", annotations: nri("mounts.nri.io/container.a", "- {source: /etc/shadow, destination: /s}"), want: "mounts: pods of namespace default"},
		{name: "a mount that leads elsewhere", annotations: nri("mounts.noderesource.dev/pod", "- {source: /data/../etc, destination: /s}"), want: "not an absolute path in its shortest form"},
		{name: "a mount on the container's own devices", annotations: nri("mounts.noderesource.dev", "- {source: /data, destination: /dev/shm}"), want: "nothing may be mounted"},
		{name: "a mount that the host shares", annotations: nri("mounts.noderesource.dev", "- {source: /data, destination: /d, options: [rshared]}"), want: "is not supported"},
		{name: "a CDI device", annotations: nri("cdi-devices.noderesource.dev", "[vendor.com/all=all]"), want: "cdi-devices: pods of namespace default"},
		{name: "a CDI device of a container, by the old key", annotations: nri("cdi-devices.nri.io/container.a", `["vendor.com/all=all"]`), want: "cdi-devices: pods of namespace default"},
		{name: "a CDI device by a path", annotations: nri("cdi-devices.nri.io", "[../../etc/cdi=x]"), want: "not the name of a CDI device"},
		{name: "the host's network", annotations: nri("network-devices.noderesource.dev", "- {hostIf: eth0, name: eth1}"), want: "network-devices: pods of namespace default"},
		{name: "the host's network, by the old key", annotations: nri("network-devices.nri.io/pod", "- {hostIf: eth0}"), want: "network-devices: pods of namespace default"},
		{name: "an interface that is a removal", annotations: nri("network-devices.noderesource.dev", "- {hostIf: -eth0, name: eth0}"), want: "not the name of a network interface"},
		{name: "an interface by a path", annotations: nri("network-devices.nri.io/container.a", "- {hostIf: eth0, name: ../../eth0}"), want: "not the name of a network interface"},
		{name: "interfaces without end", annotations: nri("network-devices.noderesource.dev", "["+strings.Repeat("{hostIf: eth0},", 65)+"]"), want: "more than 64 interfaces"},
		{name: "cgroups to write", annotations: nri("writable-cgroups.noderesource.dev", "true"), want: "writable-cgroups: pods of namespace default"},
		{name: "cgroups of a container to write", annotations: nri("writable-cgroups.noderesource.dev/container.a", "true"), want: "writable-cgroups: pods of namespace default"},
		{name: "cgroups to write by another word", annotations: nri("writable-cgroups.noderesource.dev/pod", "yes; rw"), want: `want "true" or "false"`},
		{name: "a class of the processor", annotations: nri("closid.rdt.noderesource.dev/container.a", "gold"), want: "intel-rdt: pods of namespace default"},
		{name: "a class by a path", annotations: nri("closid.rdt.noderesource.dev", "../../x"), want: "not the name of a resctrl group"},
		{name: "a class that is the kernel's", annotations: nri("closid.rdt.noderesource.dev", "mon_groups"), want: "not the name of a resctrl group"},
		{name: "all of the cache", annotations: nri("schemata.rdt.noderesource.dev/container.a", "L3:0=fffff;1=fffff,MB:0=100"), want: "intel-rdt: pods of namespace default"},
		{name: "schemata of two lines", annotations: nri("schemata.rdt.noderesource.dev", "L3:0=f\nMB:0=1"), want: "not a line of schemata"},
		{name: "schemata without end", annotations: nri("schemata.rdt.noderesource.dev", strings.Repeat("L3:0=f,", 99)+"L3:0=f"), want: "more than 16 lines"},
		{name: "groups that measure", annotations: nri("enablemonitoring.rdt.noderesource.dev", "true"), want: "intel-rdt: pods of namespace default"},
		{name: "a hook of the host", annotations: nri("trace.example/on", "yes"), want: "oci-hooks: pods of namespace default"},
		{name: "a hook of the host where nothing is allowed", namespace: "locked", annotations: nri("trace.example/on", "yes"), want: "oci-hooks: pods of namespace locked"},
		{name: "a hook of the host by a long text", annotations: nri("trace.example/on", strings.Repeat("a", 16000)+"root"), want: "oci-hooks: pods of namespace default"},
		{name: "a hook of the host by a longer text", annotations: nri("trace.example/on", strings.Repeat("root", 5000)), want: ""},

		{name: "record on the pod", annotations: map[string]string{conductor.RecordKey: `00 {"v":1,"cpus":"4-7"}`}, want: "read only from containers"},
		{name: "record on the container", record: `00000000000000000000000000000000 {"v":1,"cpus":"4-7"}`, want: "not signed"},
		{name: "record of another container", record: "stolen", want: "not signed"},
		{name: "record without a sum", record: `{"v":1,"cpus":"4-7"}`, want: "not signed"},
		{name: "huge record", record: strings.Repeat("\u202e", 1<<20), want: "longer than"},

		{name: "a type of balloons", annotations: nri(intent.NRIBalloon, "reserved"), want: "balloon: pods of namespace default"},
		{name: "a type of balloons for a container", annotations: nri(intent.NRIBalloon+"/container.a", "reserved"), want: "balloon: pods of namespace default"},
		{name: "a type of balloons for the pod", annotations: nri(intent.NRIBalloon+"/pod", strings.Repeat("x", 64)), want: "longer than 63 bytes"},
		{name: "the CPUs of all balloons", annotations: nri(intent.NRIPreserveCPU, "true"), want: "preserve: pods of namespace default"},
		{name: "the memory of all nodes", annotations: nri(intent.NRIPreserveMemory+"/container.a", "true"), want: "preserve: pods of namespace default"},
		{name: "neither truth nor falsehood", annotations: nri(intent.NRIPreserveCPU, "True"), want: `want "true" or "false"`},
		{name: "memory of another kind", annotations: nri(intent.NRIMemoryType, "hbm"), want: "memory-type: pods of namespace default"},
		{name: "memory of no kind", annotations: nri(intent.NRIMemoryType+"/pod", "DRAM,,"), want: "DRAM, HBM and PMEM"},
		{name: "everything where nothing is allowed", namespace: "locked", parent: "besteffort", labels: hami, annotations: everything, want: "assigned-cpus: pods of namespace locked may not"},
		{name: "and the GPU", namespace: "locked", annotations: devices(`{"gpu":[{"minor":0}]}`), want: "gpu: pods of namespace locked"},
		{name: "and the class", namespace: "locked", labels: labelled("LSE"), want: "class/dedicated: pods of namespace locked"},
		{name: "a namespace that is a path", namespace: "../trusted", annotations: cpuset("1,4-5"), want: "are more than"},
		{name: "a namespace of other letters", namespace: "trust\u0435d", annotations: cpuset("1,4-5"), want: "are more than"},

		{name: "container named as a path", container: "../../../kubepods", annotations: cpuset("2-3"), want: "owned by"},
		{name: "container named with a newline", container: "a\nlevel=INFO msg=granted", annotations: cpuset("2-3"), want: "owned by"},
		{name: "container named with NUL", container: "a\x00b", annotations: cpuset("2-3"), want: "owned by"},
	}
}

// moreProblems ends a list of problems that was too long. It is a warning, which a restart does
// not report again.
const moreProblems = "more problems"

// stage is a node with an owner in a trusted namespace, and the log.
type stage struct {
	*model
	said   bytes.Buffer
	stolen string
}

func newStage(t testing.TB, v cgroup.Version, strict bool) *stage {
	t.Helper()
	s := &stage{model: newModel(t, v, faults{})}
	s.log = &s.said
	s.policy.Strict = strict
	s.policy.Pools.Reserved = topology.SetOf(0)
	s.policy.Rules = intent.Rules{
		{Kinds: []intent.Kind{"*"}, Namespaces: []string{"trusted"}, Decision: intent.Allow, Name: "rule 1"},
		{Kinds: []intent.Kind{"*"}, Namespaces: []string{"locked"}, Decision: intent.Refuse, Name: "rule 2"},
	}
	// What a class gives by itself is not an attack; other tests compare it.
	s.policy.Hooks = []hook.Hook{hook.CPUSet{UnsetQuota: true}, hook.Batch{}, hook.GPU{}, hook.Normalization{Ratio: 100},
		hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle, High: 80, Low: 50, Min: 10, KillTogether: true, Kernel: lacks(v)}}
	s.policy.Hooks = append(s.policy.Hooks, injectors()...)
	s.con = nil
	s.boot()
	owner, _ := s.run(attack{namespace: "trusted", name: "owner", annotations: cpuset("2-3")}, true)
	if owner == nil || s.effective(owner) != "2-3" {
		t.Fatal("the owner does not own its CPUs")
	}
	s.stolen = owner.Annotations[conductor.RecordKey]
	return s
}

// injectors are the hooks that serve annotations of NRI's plugins, with all that can be
// switched on: authorization alone is to hold them back.
func injectors() []hook.Hook {
	return []hook.Hook{
		hook.Ulimits{}, hook.IOPriority{Realtime: true}, hook.Scheduler{Realtime: true, Deadline: true}, hook.MemoryPolicy{}, hook.Sysctl{Allowed: []string{"*"}},
		hook.DeviceNodes{Allowed: []lifecycle.Device{
			{Host: "/dev/mem", Type: "c", Major: 1, Minor: 1}, {Host: "/dev/sda", Type: "b", Major: 8}, {Host: "/dev/null", Type: "c", Major: 1, Minor: 3},
		}},
		hook.Mounts{Allowed: []string{"/", "/etc/shadow", "/data"}, Writable: []string{"/", "/data"}},
		hook.CDIDevices{Allowed: []string{"*"}}, hook.NetworkDevices{Allowed: []string{"*"}}, askedHooks(),
		hook.WritableCgroups{}, hook.IntelRDT{Classes: []string{"*"}, Schemata: true},
	}
}

// askedHooks are OCI hooks that containers have by an annotation.
func askedHooks() hook.Hook {
	def, err := hook.ReadHookFile(lifecycle.HookFile{Path: "/h/10-asked.json", Text: `{"version":"1.0.0","hook":{"path":"/bin/sh","args":["sh","-c","id"]},` +
		`"when":{"annotations":{"^trace\\.example/(.*)$":"^(yes|.*root.*)$"}},"stages":["createRuntime"]}`})
	must(err)
	return hook.OCIHooks{Files: []hook.OCIHookFile{def}}
}

// lacks are the files of preemption that a kernel of this version does not have.
func lacks(v cgroup.Version) map[string]lifecycle.Support {
	out := map[string]lifecycle.Support{}
	for _, file := range hook.PreemptionFiles() {
		if _, err := cgroup.FeatureFile(file, v); err != nil {
			out[file] = lifecycle.NotSupported
		}
	}
	return out
}

// run runs a pod with one container as kubelet and runtime would. speak is false to leave out
// its labels and annotations.
func (s *stage) run(a attack, speak bool) (*modelCtr, error) {
	s.n++
	p := &modelPod{Pod: lifecycle.Pod{
		ID: fmt.Sprintf("sandbox-%d", s.n), UID: fmt.Sprintf("uid-%d", s.n), Name: "p", Namespace: "default",
	}}
	if a.namespace != "" {
		p.Namespace = a.namespace
	}
	if a.name == "owner" {
		p.Name = a.name
	}
	if a.pod != "" {
		p.Name = a.pod
	}
	p.CgroupParent = strings.ReplaceAll("/kubepods/"+a.parent+"/pod"+p.UID, "//", "/")
	c := &modelCtr{pod: p, Container: lifecycle.Container{
		ID: fmt.Sprintf("ctr-%d", s.n), PodID: p.ID, Name: "a", State: lifecycle.StateCreated,
		CgroupsPath: fmt.Sprintf("%s/ctr-%d", p.CgroupParent, s.n), CreatedAt: int64(s.n),
	}}
	if a.container != "" {
		c.Name = a.container
	}
	r := lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2048)), Quota: lifecycle.Some(int64(200000))}}
	r.Memory.Limit = lifecycle.Some(int64(1 << 30))
	if a.quota != 0 {
		r.CPU.Shares, r.CPU.Quota = lifecycle.Some(a.shares), lifecycle.Some(a.quota)
	}
	c.Resources, c.asked = r, r
	p.Resources = clone(&r)
	if speak {
		p.Labels, p.Annotations = a.labels, a.annotations
		if a.record == "stolen" {
			a.record = s.stolen
		}
		if a.record != "" {
			c.Annotations = map[string]string{conductor.RecordKey: a.record}
		}
	}
	must(s.kernel.MkdirRunc(strings.TrimPrefix(p.CgroupParent, "/")))
	pod := &modelCtr{pod: p, Container: lifecycle.Container{CgroupsPath: p.CgroupParent, Resources: r}}
	s.toKernel(pod)
	s.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&p.Pod)})
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: clone(&c.Container)}
	ans, err := s.con.Handle(context.Background(), carrier{}, ev)
	if err != nil {
		return nil, err
	}
	s.apply(c, ans.Values)
	for _, v := range ans.Values {
		if v.Field == lifecycle.MountPoint || v.Field == lifecycle.DeviceNode {
			c.Mounts = append(c.Mounts, lifecycle.Mount{Destination: v.Key})
		}
	}
	s.pods = append(s.pods, p)
	p.ctrs = append(p.ctrs, c)
	s.start(c)
	return c, nil
}

// inForce returns everything that the kernel and the spec show of a container and its pod.
func (s *stage) inForce(c *modelCtr) map[string]string {
	tree := &cgroup.Tree{FS: s.kernel, Version: s.version}
	got := map[string]string{
		"cpus": s.effective(c), "env": fmt.Sprint(c.Env), "mounts": fmt.Sprint(c.Mounts), "created": fmt.Sprint(c.created), "owned": fmt.Sprint(len(nodeview.Status(s.con).CPUs.Grants)),
	}
	for whose, dir := range map[string]string{"container": c.dir(), "pod": strings.TrimPrefix(c.pod.CgroupParent, "/")} {
		for _, f := range []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit} {
			text, err := tree.Read(dir, f, "")
			must(err)
			got[whose+" "+f.String()] = text
		}
		for _, file := range append(hook.PreemptionFiles(), "cpu.max.burst") {
			if _, err := cgroup.FeatureFile(file, s.version); err == nil {
				text, err := tree.Read(dir, lifecycle.Unified, file)
				must(err)
				got[whose+" "+file] = text
			}
		}
	}
	return got
}

// reportedProblems returns the problems in explain and in the journal, and the size of their text.
func (s *stage) reportedProblems(c *modelCtr) (explained, journalled []lifecycle.Problem, size int) {
	found, _ := nodeview.Explain(s.con, c.pod.Namespace, c.pod.Name, "")
	for _, e := range found {
		explained = append(explained, e.Problems...)
	}
	events, _ := s.con.Journal().Since(0)
	for _, e := range events {
		journalled = append(journalled, e.Problems...)
	}
	text, err := json.Marshal([]any{found, events})
	must(err)
	return explained, journalled, len(text)
}

func speaksOf(problems []lifecycle.Problem, want string) bool {
	for _, p := range problems {
		if strings.Contains(p.String(), want) {
			return true
		}
	}
	return false
}

// bounds are far above the cost of any attack and far below what would delay a pod. The runtime
// gives an event two seconds.
const (
	longest = 2 * time.Second
	largest = 64 << 10
)

// TestHostile plays each attack, and the same pod without labels and annotations. The kernel
// must show the same for both, and explain, journal and log must have the refusal.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, a := range attacks() {
			t.Run(v.String()+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				meek := newStage(t, v, false)
				silent, _ := meek.run(a, false)
				want := meek.inForce(silent)
				s := newStage(t, v, false)
				start := time.Now()
				c, err := s.run(a, true)
				if took := time.Since(start); took > longest {
					t.Errorf("took %s", took)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, s.inForce(c)); diff != "" {
					t.Error("something was granted", diff)
				}
				checkTold(t, s, c, a.want)
				s.said.Reset()
				s.restart()
				if diff := cmp.Diff(want, s.inForce(c)); diff != "" {
					t.Error("something was granted by a restart", diff)
				}
				if a.record == "" && a.want != moreProblems { // the agent's record has replaced the forged one
					checkTold(t, s, c, a.want)
				}
				if len(s.broken) > 0 {
					t.Error(s.broken)
				}
			})
		}
	}
}

// checkTold checks that explain, the journal and the log report a problem with this text.
func checkTold(t *testing.T, s *stage, c *modelCtr, want string) {
	t.Helper()
	explained, journalled, size := s.reportedProblems(c)
	if want != "" && (!speaksOf(explained, want) || !speaksOf(journalled, want)) {
		t.Errorf("explained %v, journalled %v; want %q in both", explained, journalled, want)
	}
	if want == "" && len(explained) > 0 {
		t.Errorf("explained %v, want nothing", explained)
	}
	if log := s.said.String(); want != "" && !strings.Contains(log, strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("the log does not say %q:\n%s", want, log)
	}
	if size > largest || s.said.Len() > largest {
		t.Errorf("%d bytes are shown, %d logged", size, s.said.Len())
	}
	for _, r := range s.said.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%U in the log", r)
		}
	}
	if strings.Contains(s.said.String(), "\nlevel=INFO") {
		t.Error("a name wrote a line of the log")
	}
	for _, p := range explained {
		if len(p.String()) > 1200 {
			t.Errorf("a problem of %d bytes", len(p.String()))
		}
	}
}

// TestHostileStrict: strict mode refuses each attack's container with the expected sentence.
func TestHostileStrict(t *testing.T) {
	t.Parallel()
	for _, a := range attacks() {
		if a.want == "" || a.want == moreProblems {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, cgroup.V2, true)
			a.want = strings.TrimPrefix(a.want, "assigned-cpus: ") // the class is refused first
			if _, err := s.run(a, true); err == nil || !strings.Contains(err.Error(), a.want) || len(err.Error()) > 1200 {
				t.Errorf("%v, want %q", err, a.want)
			}
			if n := len(nodeview.Status(s.con).CPUs.Grants); n != 1 {
				t.Errorf("%d grants", n)
			}
		})
	}
}

// TestHostileCanFail shows that the suite finds a fault: with rules that allow everything,
// attacks succeed.
func TestHostileCanFail(t *testing.T) {
	granted := 0
	for _, a := range attacks() {
		s, meek := newStage(t, cgroup.V2, false), newStage(t, cgroup.V2, false)
		s.policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
		s.con.Configure(s.policy, conductor.Tuning{})
		c, _ := s.run(a, true)
		silent, _ := meek.run(a, false)
		if !cmp.Equal(meek.inForce(silent), s.inForce(c)) {
			granted++
		}
	}
	if granted < 8 {
		t.Errorf("with everything allowed only %d attacks are granted anything", granted)
	}
}

// nasty draws annotation texts: pieces of valid ones in wrong combinations.
func nasty() *rapid.Generator[string] {
	pieces := rapid.SampledFrom([]string{
		`{"cpuset":`, `"2-3"`, `"4-5"`, `"1,4-7"`, `}`, `,`, `"numaNodeResources":`, `[{"node":1,"resources":{"cpu":"2"}}]`, `[`, `]`,
		`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":`, `"64000"`, `9223372036854775807`, `-1`, `1e9`, `"0.5"`, `}}}}`,
		`{"gpu":[{"minor":`, `0}]}`, `null`, "\x00", "\u202e", "\xff", `"`, `../`,
	})
	whole := rapid.SampledFrom([]string{
		"", `{"cpuset":"2-3"}`, `{"cpuset":"4-5"}`, `{"cpuset":"1,4-7"}`, `{"cpuset":"4","numaNodeResources":[{"node":1,"resources":{"cpu":"1"}}]}`,
		`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"64000"}}}}`, `{"containers":{"a":{}}}`, `{"gpu":[{"minor":0}]}`,
	})
	return rapid.OneOf(whole, rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(pieces, 1, 8).Draw(t, "pieces"), "") }), rapid.String())
}

// TestHostileHistories draws pods. A pod with a limit of two CPUs never owns more, and never
// loses its limit unless it owns CPUs. If nothing is allowed, nothing changes.
func TestHostileHistories(t *testing.T) {
	meek := newStage(t, cgroup.V2, false)
	first, _ := meek.run(attack{namespace: "locked"}, false)
	want := meek.inForce(first)
	rapid.Check(t, func(rt *rapid.T) {
		a := attack{
			namespace: rapid.SampledFrom([]string{"locked", "default"}).Draw(rt, "namespace"),
			parent:    rapid.SampledFrom([]string{"", "burstable"}).Draw(rt, "parent"),
			labels:    labelled(rapid.SampledFrom([]string{"", "LSR", "LS", "BE", "SYSTEM", "x"}).Draw(rt, "class")),
			annotations: map[string]string{
				intent.KoordResourceStatus: nasty().Draw(rt, "status"),
				intent.KoordExtended:       nasty().Draw(rt, "extended"),
				intent.KoordDevices:        nasty().Draw(rt, "devices"),
			},
			record: rapid.OneOf(rapid.Just(""), rapid.Just("stolen"), rapid.String()).Draw(rt, "record"),
		}
		judge(rt, newStage(t, cgroup.V2, false), a, want)
	})
}

type failer interface{ Errorf(string, ...any) }

// judge plays a pod with a limit and a request of two CPUs.
func judge(t failer, s *stage, a attack, want map[string]string) {
	c, err := s.run(a, true)
	if err != nil {
		t.Errorf("refused: %v", err)
		return
	}
	s.restart()
	got := s.inForce(c)
	owns := got["owned"] == "2"
	switch {
	case a.namespace == "locked" && !cmp.Equal(want, got):
		t.Errorf("something was granted: %s", cmp.Diff(want, got))
	case owns && len(idsOf(got["cpus"])) > 2:
		t.Errorf("it owns CPUs %s", got["cpus"])
	case owns && len(intersect(idsOf(got["cpus"]), []int{0, 2, 3})) > 0:
		t.Errorf("it owns CPUs %s, which are reserved or another's", got["cpus"])
	case got["container memory.limit"] != want["container memory.limit"], got["pod memory.limit"] != want["pod memory.limit"],
		got["container cpu.shares"] != want["container cpu.shares"],
		!owns && (got["container cpu.quota"] != want["container cpu.quota"]):
		t.Errorf("limits changed: %s", cmp.Diff(want, got))
	}
	if _, _, size := s.reportedProblems(c); size > largest || s.said.Len() > largest {
		t.Errorf("%d bytes are shown, %d logged", size, s.said.Len())
	}
	if len(s.broken) > 0 {
		t.Errorf("%v", s.broken)
	}
}

// FuzzHostile feeds foreign text to everything a pod's author can write.
func FuzzHostile(f *testing.F) {
	for _, a := range attacks() {
		if len(fmt.Sprint(a.annotations))+len(a.record) < 1000 {
			f.Add(a.namespace == "locked", a.labels[intent.KoordQoSClass], a.annotations[intent.KoordResourceStatus],
				a.annotations[intent.KoordExtended], a.annotations[intent.KoordDevices], a.record)
		}
	}
	f.Fuzz(func(t *testing.T, locked bool, class, resourceStatus, extendedSpec, allocated, record string) {
		clock.Bound(t, len(class)+len(resourceStatus)+len(extendedSpec)+len(allocated)+len(record), func() {
			meek := newStage(t, cgroup.V2, false)
			a := attack{namespace: "default", labels: labelled(class), record: record, annotations: map[string]string{
				intent.KoordResourceStatus: resourceStatus, intent.KoordExtended: extendedSpec, intent.KoordDevices: allocated,
			}}
			if locked {
				a.namespace = "locked"
			}
			silent, _ := meek.run(a, false)
			judge(t, newStage(t, cgroup.V2, false), a, meek.inForce(silent))
		})
	})
}
