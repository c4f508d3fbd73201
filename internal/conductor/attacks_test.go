package conductor_test

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
)

// attack is a pod whose author wants more than the pod was given. By default it has a limit and
// a request of two CPUs, in a namespace that no rule names.
type attack struct {
	name        string
	pod         string // the name of the pod; default "p"
	namespace   string
	parent      string // "besteffort", "burstable" or "" for Guaranteed
	labels      map[string]string
	annotations map[string]string
	record      string // forged, on the container
	container   string
	shares      uint64
	quota       int64
	want        string // the expected report; "" for none
	others      bool   // another program may serve the request, so that strict mode creates the container
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
		{name: "a high limit and no request", annotations: cpuset("4-7"), shares: 102, quota: 6400000, want: "4 CPUs are more than the pod's CPU request of 0.1, rounded down to 0"},
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
		{name: "deep lists without end", annotations: assigned(strings.Repeat("[", 16000)), want: "too many JSON values"},
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
		{name: "the reclaimed pool by name", annotations: katalyst("shared_cores", `{"cpuset_pool":"reclaim"}`), want: "the agent uses a pool of this name itself"},
		{name: "a pool named as a path", annotations: katalyst("shared_cores", `{"cpuset_pool":"../../system.slice"}`), want: "not the name of a pool"},
		{name: "a pool named without end", annotations: katalyst("shared_cores", `{"cpuset_pool":"`+strings.Repeat("a", 16000)+`"}`), want: "not the name of a pool"},
		{name: "enhancements that are no strings", annotations: katalyst("shared_cores", `{"numa_binding":true}`), want: "malformed JSON"},
		{name: "a level of other letters", annotations: katalyst("dedicated_c\u043eres", `{}`), want: "not a QoS level"},

		{name: "limits without end", annotations: nri("ulimits.noderesource.dev", "[{type: memlock, hard: 18446744073709551615, soft: 18446744073709551615}]"), want: "ulimits: pods of namespace default"},
		{name: "limits of a container, by the old key", annotations: nri("ulimits.nri.containerd.io/container.a", "- {type: RLIMIT_RTPRIO, hard: 99, soft: 99}"), want: "ulimits: pods of namespace default"},
		{name: "limits that are anchors", annotations: nri("ulimits.noderesource.dev", "a: &a [x]\nb: [*a, *a]"), want: "anchors"},
		{name: "limits above 64 bits", annotations: nri("ulimits.noderesource.dev", "- {type: nofile, hard: 1e400, soft: 1}"), want: "malformed"},
		{name: "limits in deep YAML", annotations: nri("ulimits.noderesource.dev", strings.Repeat("- ", 1000)), want: "too many values"},
		{name: "limits of a path", annotations: nri("ulimits.noderesource.dev", "- {type: ../../nofile, hard: 1}"), want: "not a process limit of Linux"},
		{name: "disks before all others", annotations: nri("io-priority.noderesource.dev", "class: IOPRIO_CLASS_RT"), want: "io-priority: pods of namespace default"},
		{name: "disks before all others, by the old key", annotations: nri("io-priority.nri.io/container.a", "class: IOPRIO_CLASS_RT"), want: "io-priority: pods of namespace default"},
		{name: "CPUs before all others", annotations: nri("scheduling-policy.noderesource.dev", "{policy: SCHED_FIFO, priority: 99}"), want: "scheduler: pods of namespace default"},
		{name: "CPUs by deadlines", annotations: nri("scheduling-policy.nri.io/pod", "{policy: SCHED_DEADLINE, runtime: 999999, deadline: 1000000}"), want: "scheduler: pods of namespace default"},
		{name: "a policy that Linux has not", annotations: nri("scheduling-policy.noderesource.dev", "policy: SCHED_EXT"), want: "not a policy of Linux"},
		{name: "memory of another node", annotations: nri("memory-policy.noderesource.dev", "{mode: MPOL_BIND, nodes: '1'}"), want: "memory-policy: pods of namespace default"},
		{name: "memory of nodes without end", annotations: nri("memory-policy.nri.io", "{mode: MPOL_BIND, nodes: 0-4000000000}"), want: "is above"},
		{name: "memory of another node by a class", annotations: nri("class.memory-policy.nri.io/container.a", "bound"), want: "memory-policy: pods of namespace default"},
		{name: "memory of every node", annotations: nri("policy.memory-policy.nri.io", "{mode: MPOL_BIND, nodes: all}"), want: "memory-policy: pods of namespace default"},
		{name: "memory nodes that are no set", annotations: nri("policy.memory-policy.nri.io", "{mode: MPOL_BIND, nodes: max-dist:999}"), want: "is not valid: use a list such as 0-3"},
		{name: "swap by a class", annotations: nri("class.memory-qos.nri.io", "bronze"), want: "memory-qos: pods of namespace default"},
		{name: "swap without a limit", annotations: nri("memory.swap.max.memory-qos.nri.io/container.a", "max"), want: "memory-qos: pods of namespace default"},
		{name: "memory below nothing", annotations: nri("memory.high.memory-qos.nri.io", "-1"), want: "want bytes"},
		{name: "more memory than there are numbers", annotations: nri("memory.high.memory-qos.nri.io/pod", "99999999999Ei"), want: "memory.high"},
		{name: "parameters of the pod", annotations: nri("sysctl.noderesource.dev", "net.ipv4.ip_unprivileged_port_start: 0"), want: "sysctl: pods of namespace default"},
		{name: "parameters of the node", annotations: nri("sysctl.noderesource.dev/container.a", "kernel.core_pattern: '|/bin/sh'"), want: "sysctl: pods of namespace default"},
		{name: "parameters by a path", annotations: nri("sysctl.noderesource.dev", "../../kernel/core_pattern: x"), want: "is not the name"},
		{name: "parameters where nothing is allowed", namespace: "locked", annotations: nri("sysctl.noderesource.dev", "net.ipv4.tcp_syncookies: 0"), want: "sysctl: pods of namespace locked"},
		{name: "the node's memory", annotations: nri("devices.noderesource.dev", "- {path: /dev/mem, type: c, major: 1, minor: 1}"), want: "device-nodes: pods of namespace default"},
		{name: "the node's disk, by the old key", annotations: nri("devices.nri.io/container.a", "- {path: /dev/null, type: b, major: 8, minor: 0, file_mode: 0666}"), want: "device-nodes: pods of namespace default"},
		{name: "devices out of /dev", annotations: nri("devices.noderesource.dev/pod", "- {path: /dev/../etc/passwd, type: c, major: 1, minor: 3}"), want: "is not a path below /dev"},
		{name: "a device with set-user-ID", annotations: nri("devices.noderesource.dev", "- {path: /dev/x, type: c, major: 1, minor: 3, file_mode: 04777}"), want: "is above 777"},
		{name: "devices of negative numbers", annotations: nri("devices.noderesource.dev", "- {path: /dev/x, type: c, major: -1, minor: 3}"), want: "not a valid device number"},
		{name: "devices without end", annotations: nri("devices.noderesource.dev", "["+strings.Repeat(`{"path":"/dev/x"},`, 99)+`{"path":"/dev/x"}]`), want: "more than 64 devices"},
		{name: "the host's files", annotations: nri("mounts.noderesource.dev", "- {source: /, destination: /host, type: bind, options: [rbind, rw]}"), want: "mounts: pods of namespace default"},
		{name: "the host's files, by the old key", annotations: nri("mounts.nri.io/container.a", "- {source: /etc/shadow, destination: /s}"), want: "mounts: pods of namespace default"},
		{name: "a mount that leads elsewhere", annotations: nri("mounts.noderesource.dev/pod", "- {source: /data/../etc, destination: /s}"), want: "not an absolute path in its shortest form"},
		{name: "a mount on the container's own devices", annotations: nri("mounts.noderesource.dev", "- {source: /data, destination: /dev/shm}"), want: "or is in /dev, /proc or /sys"},
		{name: "a mount that the host shares", annotations: nri("mounts.noderesource.dev", "- {source: /data, destination: /d, options: [rshared]}"), want: "is not supported"},
		{name: "a CDI device", annotations: nri("cdi-devices.noderesource.dev", "[vendor.com/all=all]"), want: "cdi-devices: pods of namespace default"},
		{name: "a CDI device of a container, by the old key", annotations: nri("cdi-devices.nri.io/container.a", `["vendor.com/all=all"]`), want: "cdi-devices: pods of namespace default"},
		{name: "a CDI device by a path", annotations: nri("cdi-devices.nri.io", "[../../etc/cdi=x]"), want: "not the name of a CDI device"},
		{name: "the host's network", annotations: nri("network-devices.noderesource.dev", "- {hostIf: eth0, name: eth1}"), want: "network-devices: pods of namespace default"},
		{name: "the host's network, by the old key", annotations: nri("network-devices.nri.io/pod", "- {hostIf: eth0}"), want: "network-devices: pods of namespace default"},
		{name: "an interface that is a removal", annotations: nri("network-devices.noderesource.dev", "- {hostIf: -eth0, name: eth0}"), want: "not the name of a network interface"},
		{name: "an interface by a path", annotations: nri("network-devices.nri.io/container.a", "- {hostIf: eth0, name: ../../eth0}"), want: "not the name of a network interface"},
		{name: "interfaces without end", annotations: nri("network-devices.noderesource.dev", "["+strings.Repeat("{hostIf: eth0},", 65)+"]"), want: "more than 64 interfaces"},
		{name: "the host's network, for the whole pod", annotations: nri("netdevice.noderesource.dev", "- {name: eth0, new_name: eth1}"), want: "network-devices: pods of namespace default"},
		{name: "the host's network for the whole pod, by the old key", annotations: nri("netdevices.nri.containerd.io/pod", "- {name: eth0}"), want: "network-devices: pods of namespace default"},
		{name: "an interface of the pod by a path", annotations: nri("netdevice.noderesource.dev/pod", "- {name: ../../eth0}"), want: "not the name of a network interface"},
		{name: "interfaces of the pod without end", annotations: nri("netdevices.nri.containerd.io", "["+strings.Repeat("{name: eth0},", 65)+"]"), want: "more than 64 interfaces"},
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

		{name: "record on the pod", annotations: map[string]string{conductor.RecordKey: `00 {"v":1,"cpus":"4-7"}`}, want: "only the agent may write this annotation"},
		{name: "record on the container", record: `00000000000000000000000000000000 {"v":1,"cpus":"4-7"}`, want: "not signed"},
		{name: "record of another container", record: "stolen", want: "not signed"},
		{name: "record without a sum", record: `{"v":1,"cpus":"4-7"}`, want: "not signed"},
		{name: "huge record", record: strings.Repeat("\u202e", 1<<20), want: "longer than"},

		{name: "a type of balloons", annotations: nri(intent.NRIBalloon, "reserved"), want: "balloon: pods of namespace default"},
		{name: "a type of balloons for a container", annotations: nri(intent.NRIBalloon+"/container.a", "reserved"), want: "balloon: pods of namespace default"},
		{name: "a type of balloons for the pod", annotations: nri(intent.NRIBalloon+"/pod", strings.Repeat("x", 64)), want: "longer than 63 bytes"},
		{name: "a scheduling class", annotations: nri(intent.NRISchedulingClass, "realtime"), want: "scheduling-class: pods of namespace default"},
		{name: "a scheduling class for the pod", annotations: nri(intent.NRISchedulingClass+"/pod", strings.Repeat("x", 65)), want: "longer than 64 bytes"},
		{name: "a CPU class", annotations: nri("cpu-class.resource-policy.nri.io", "fast"), want: "this agent does not serve it", others: true},
		{name: "a CPU class for a container", annotations: nri("cpu-class.resource-policy.nri.io/container.a", "fast"), want: "this agent does not serve it", others: true},
		{name: "a CPU class by a path", annotations: nri("cpu-class.resource-policy.nri.io/pod", "../../cpufreq/policy0/scaling_governor"), want: "this agent does not serve it", others: true},
		{name: "a CPU class as a type of balloons", annotations: nri(intent.NRIBalloon, "fast"), want: "balloon: pods of namespace default"},
		{name: "a CPU class as a type of balloons for the pod", annotations: nri(intent.NRIBalloon+"/pod", "fast"), want: "balloon: pods of namespace default"},
		{name: "a CPU class as a scheduling class", annotations: nri(intent.NRISchedulingClass, "fast"), want: "scheduling-class: pods of namespace default"},
		{name: "a CPU class as a resource", annotations: nri("cpuclass.balloons.nri.io/fast", "1")},
		{name: "CPUs with a priority", annotations: nri("prefer-cpu-priority.resource-policy.nri.io", "high"), want: "this agent does not serve it", others: true},
		{name: "a balloon by a record", record: `00000000000000000000000000000000 {"v":1,"pool":"balloon","name":"fast[0]"}`, want: "not signed"},
		{name: "the cpufreq and cpuidle files by a mount", annotations: nri("mounts.noderesource.dev", "- {source: /sys/devices/system/cpu/cpufreq, destination: /c, type: bind, options: [rw]}"), want: "mounts: pods of namespace default"},
		{name: "the cpufreq and cpuidle files by a parameter", annotations: nri("sysctl.noderesource.dev", "devices.system.cpu.cpufreq.boost: 1"), want: "sysctl: pods of namespace default"},
		{name: "idle states by a device", annotations: nri("devices.noderesource.dev", "- {path: /dev/cpu_dma_latency, type: c, major: 10, minor: 124}"), want: "device-nodes: pods of namespace default"},
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
