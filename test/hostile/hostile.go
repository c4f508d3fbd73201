// Package hostile makes pods whose annotations and labels are as expensive to parse as the API server allows: 256 KiB
// of annotations in total, and labels of 63 letters. Tests limit what such a pod may cost the agent, and benchmarks
// measure the cost.
package hostile

import (
	"fmt"
	"slices"
	"strings"
)

// The API server's limits for one object.
const (
	// MaxAnnotationBytes is the limit of all keys and values of annotations together.
	MaxAnnotationBytes = 256 << 10
	// MaxLabelLength is the limit of a label's value.
	MaxLabelLength = 63
	// maxLabels is the number of labels with values of MaxLabelLength that fit into an object of 1.5 MiB.
	maxLabels = 12 << 10
)

// Pod has the labels and annotations of one hostile pod.
type Pod struct {
	Name                string
	Labels, Annotations map[string]string
}

// The annotation keys of the pods, by the format of their values.
var (
	// jsonKeys are the keys whose values are JSON.
	jsonKeys = []string{
		"scheduling.koordinator.sh/resource-status", "scheduling.koordinator.sh/resource-spec", "node.koordinator.sh/extended-resource-spec",
		"scheduling.koordinator.sh/device-allocated", "koordinator.sh/cpuQOS", "koordinator.sh/oom-score-adj-spec", "koordinator.sh/blkioQOS",
		"node.koordinator.sh/resctrl", "katalyst.kubewharf.io/cpu_enhancement", "katalyst.kubewharf.io/memory_enhancement",
		"katalyst.kubewharf.io/network_enhancement", "volcano.sh/blkio-limit", "trimtab.io/hugepage-limits", "trimtab.io/cdi-devices",
	}
	// yamlKeys are the keys whose values are YAML.
	yamlKeys = []string{
		"ulimits.noderesource.dev", "io-priority.noderesource.dev/pod", "scheduling-policy.nri.io", "memory-policy.noderesource.dev/container.a",
		"sysctl.noderesource.dev", "devices.noderesource.dev", "cdi-devices.nri.io", "network-devices.noderesource.dev/pod",
		"mounts.noderesource.dev", "netdevice.noderesource.dev/pod",
	}
	// listKeys are the keys whose values are lists with commas, such as "0-3,7".
	listKeys = []string{"katalyst.kubewharf.io/numa_bind_result", "katalyst.kubewharf.io/numa_ids", "trimtab.io/cpu-env", "schemata.rdt.noderesource.dev"}
	// nameKeys are the keys whose values are a single name, number or text.
	nameKeys = []string{
		"katalyst.kubewharf.io/qos_level", "katalyst.kubewharf.io/numa_number", "volcano.sh/preemptable", "volcano.sh/cache-limit",
		"volcano.sh/quota-burst-time", "volcano.sh/quota-turbo", "volcano.sh/cpi", "koordinator.sh/oom-score-adj", "trimtab.io/unset-cpu-quota",
		"trimtab.io/blockio-class", "trimtab.io/rdt-class", "trimtab.io/prefer-core-type", "trimtab.io/prefer-isolated-cpus", "trimtab.io/record",
	}
)

// Keys returns the annotation keys that the pods set.
func Keys() []string {
	return slices.Concat(jsonKeys, listKeys, nameKeys, yamlKeys)
}

// Pods returns the pods. The agent parses only values of at most maxParsed bytes, and refuses a longer value because of
// its length. So there are two kinds of pods. The first pods each have one value that is as long as the API server
// accepts. The other pods have expensive values of at most maxParsed bytes.
func Pods(maxParsed int) []Pod {
	var out []Pod
	add := func(name string, annotations map[string]string) {
		out = append(out, Pod{Name: name, Labels: classLabels(), Annotations: annotations})
	}
	for _, key := range Keys() {
		add("one value as long as is accepted, "+key, addValue(map[string]string{}, key, MaxAnnotationBytes-len(key)-200, repeatPart("0-4095,")))
	}
	for _, s := range expensiveShapes() {
		for _, parts := range []int{16, 12, 8, 6, 5, 4, 3, 2} {
			for _, key := range s.keys {
				add(fmt.Sprintf("%s, %d/16, %s", s.name, parts, key), addValue(map[string]string{}, key, maxParsed*parts/16, s.text))
			}
		}
		for _, parts := range []int{16, 8, 4, 2, 1} {
			all := map[string]string{}
			for _, key := range s.keys {
				addValue(all, key, min(maxParsed, (MaxAnnotationBytes-4096)/len(s.keys))*parts/16, s.text)
			}
			add(fmt.Sprintf("%s, %d/16, in every key", s.name, parts), all)
		}
	}
	many := map[string]string{}
	for n, size := 0, 0; size < MaxAnnotationBytes-8; n++ {
		key := fmt.Sprintf("%x", n)
		many[key] = ""
		size += len(key)
	}
	add("tens of thousands of annotations", many)
	out = append(out, Pod{Name: "thousands of labels", Labels: manyLabels()})
	return out
}

// classLabels returns labels that make the agent read as many annotation keys as possible.
func classLabels() map[string]string {
	return map[string]string{
		"koordinator.sh/qosClass": "LS", "koordinator.sh/gpu-isolation-provider": "HAMi-core",
		"koordinator.sh/core-sched-group-id": strings.Repeat("g", MaxLabelLength), "koordinator.sh/core-sched-policy": "exclusive",
	}
}

// manyLabels returns classLabels and maxLabels long labels.
func manyLabels() map[string]string {
	all := classLabels()
	for n := range maxLabels {
		all[fmt.Sprintf("l%x", n)] = strings.Repeat("x", MaxLabelLength)
	}
	return all
}

// addValue adds a value to annotations and returns the annotations. It also adds annotations of Katalyst, because the
// agent reads some keys only in pods that have annotations of Katalyst.
func addValue(annotations map[string]string, key string, length int, text func(int) string) map[string]string {
	annotations[key] = text(length)
	annotations["katalyst.kubewharf.io/qos_level"] = "dedicated_cores"
	if key != "katalyst.kubewharf.io/cpu_enhancement" && annotations["katalyst.kubewharf.io/cpu_enhancement"] == "" {
		annotations["katalyst.kubewharf.io/cpu_enhancement"] = `{"numa_binding":"true"}`
	}
	return annotations
}

// shape is a form of a value that is expensive to parse.
type shape struct {
	name string
	keys []string                // the keys that get such a value
	text func(length int) string // returns a value of at most about this length
}

// expensiveShapes returns the forms of expensive values.
func expensiveShapes() []shape {
	kube := "kubernetes.io/batch-cpu"
	return []shape{
		{"wide ranges", listKeys, repeatPart("0-4095,")},
		{"single CPUs", listKeys, repeatPart("7,")},
		{"spaces", listKeys, repeatPart(" 7 ,")},
		{"a variable each", listKeys, numberMembers("", "A%d=list", "")},
		{"no name", nameKeys, repeatPart("\u202e")},
		{"no JSON", slices.Concat(jsonKeys, yamlKeys), repeatPart("[")},
		{"deep YAML", yamlKeys, repeatPart("- ")},
		{"YAML members", yamlKeys, func(n int) string { return strings.ReplaceAll(numberMembers("", "k%x: 1", "")(n), ",", "\n") }},
		{"a list of YAML", yamlKeys, func(n int) string { return strings.TrimSuffix(strings.Repeat("- a\n", n/4), "\n") }},
		{"limits", yamlKeys[:1], numberMembers(`[`, `{"type":"nofile","hard":%d,"soft":1}`, `]`)},
		{"parameters", yamlKeys[4:5], numberMembers(`{`, `"net.ipv4.%x":1`, `}`)},
		{"devices", yamlKeys[5:6], numberMembers(`[`, `{"path":"/dev/%x"}`, `]`)},
		{"CDI devices", yamlKeys[6:7], numberMembers(`[`, `"a.b/c=%x"`, `]`)},
		{"interfaces", yamlKeys[7:8], numberMembers(`[`, `{"hostIf":"e%x"}`, `]`)},
		{"mounts", yamlKeys[8:9], numberMembers(`[`, `{"source":"/%x"}`, `]`)},
		{"interfaces of the pod", yamlKeys[9:], numberMembers(`[`, `{"name":"e%x"}`, `]`)},
		{"unknown members", yamlKeys, numberMembers(`[`, `{"other":"/%x"}`, `]`)},
		{"deep lists", jsonKeys, nestLists},
		{"a long text", jsonKeys, quoteParts("x")},
		{"escapes", jsonKeys, quoteParts(`\u0041`)},
		{"a list of CPUs", jsonKeys[:1], func(n int) string { return `{"cpuset":"` + repeatPart("0-4095,")(n-20) + `"}` }},
		{"members", jsonKeys, numberMembers(`{`, `"%x":"x"`, `}`)},
		{"numbers", jsonKeys, numberMembers(`{`, `"%x":9999`, `}`)},
		{"objects", jsonKeys, numberMembers(`{`, `"%x":{}`, `}`)},
		{"one member many times", jsonKeys, numberMembers(`{`, `"a":"%.0s"`, `}`)},
		{"one container many times", jsonKeys[2:3], numberMembers(`{"containers":{`, `"a":{%.0s}`, `}}`)},
		{"a member in a long name many times", jsonKeys[2:3], longName},
		{"containers", jsonKeys[2:3], numberMembers(`{"containers":{`, `"c%x":{"requests":{"`+kube+`":1},"limits":{"`+kube+`":"1"}}`, `}}`)},
		{"fractions", jsonKeys[2:3], numberMembers(`{"containers":{`, `"c%x":{"limits":{"`+kube+`":"1.000000000000000000001e99"}}`, `}}`)},
		{"NUMA nodes", jsonKeys[:1], numberMembers(`{"numaNodeResources":[`, `{"node":%d,"resources":{"cpu":"1.5e3"}}`, `]}`)},
		{"NUMA nodes of none", jsonKeys[:1], numberMembers(`{"numaNodeResources":[`, `{"node":-%d,"resources":{"cpu":1}}`, `]}`)},
		{"GPUs", jsonKeys[3:4], numberMembers(`{"gpu":[`, `{"minor":%d}`, `]}`)},
		{"RDMA cards", jsonKeys[3:4], numberMembers(`{"rdma":[`, `{"id":"0000:%04x:00.0"}`, `]}`)},
		{"functions of an RDMA card", jsonKeys[3:4], numberMembers(`{"rdma":[{"extension":{"vfs":[`, `{"busID":"%04x:00:00.0"}`, `]}}]}`)},
		{"disks", jsonKeys[6:7], numberMembers(`{"blocks":[`, `{"name":"d%x","type":"device"}`, `]}`)},
		{"volumes", jsonKeys[6:7], numberMembers(`{"blocks":[`, `{"name":"%x"}`, `]}`)},
		{"limits of disks", jsonKeys[11:12], numberMembers(`{"device_read_bps":[`, `{"device":"d%x","value":"1"}`, `]}`)},
		{"caches", jsonKeys[7:8], numberMembers(`{"llc":{"schemataPerCache":[`, `{"cacheID":%d,"range":[0,1]}`, `]}}`)},
		{"scores", jsonKeys[5:6], numberMembers(`{`, `"c%x":9999`, `}`)},
		{"huge pages", jsonKeys[12:13], numberMembers(`{"a":{`, `"%x":1`, `}}`)},
		{"huge pages of containers", jsonKeys[12:13], numberMembers(`{`, `"c%x":{"hugepages-2Mi":"2Mi"}`, `}`)},
	}
}

// repeatPart returns a function that makes a text of about the given length by repeating part.
func repeatPart(part string) func(int) string {
	return func(length int) string { return strings.TrimSuffix(strings.Repeat(part, length/len(part)), ",") }
}

// quoteParts returns a function that makes a JSON object with one long string, in which part is repeated.
func quoteParts(part string) func(int) string {
	return func(length int) string { return `{"a":"` + strings.Repeat(part, (length-10)/len(part)) + `"}` }
}

// nestLists makes a JSON object with deeply nested lists.
func nestLists(length int) string {
	n := min(length/2-8, 9000)
	return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
}

// longName makes a JSON object for a container with a very long name. The object of the container's requests repeats
// the same member many times.
func longName(length int) string {
	return `{"containers":{"` + strings.Repeat("n", length/2) + `":{"requests":` + numberMembers(`{`, `"a":1%.0s`, `}`)(length/2-40) + `}}}`
}

// numberMembers returns a function that makes a text of at most the given length. The text is before, then many copies
// of part with commas between them, then after. Each copy of part is formatted with its number.
func numberMembers(before, part, after string) func(int) string {
	return func(length int) string {
		var b strings.Builder
		b.WriteString(before)
		for n := 0; ; n++ {
			next := fmt.Sprintf(part, n)
			if b.Len()+len(next)+1+len(after) > length {
				return strings.TrimSuffix(b.String(), ",") + after
			}
			b.WriteString(next + ",")
		}
	}
}
