package intent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Keys of Katalyst (katalyst-api of 2026-08, katalyst-core 0.5) that the agent
// reads.
const (
	KatalystQoSLevel   = "katalyst.kubewharf.io/qos_level"
	KatalystCPU        = "katalyst.kubewharf.io/cpu_enhancement"
	KatalystMemory     = "katalyst.kubewharf.io/memory_enhancement"
	KatalystNetwork    = "katalyst.kubewharf.io/network_enhancement"
	KatalystBindResult = "katalyst.kubewharf.io/numa_bind_result"
	KatalystNUMANumber = "katalyst.kubewharf.io/numa_number"
	KatalystNUMAIDs    = "katalyst.kubewharf.io/numa_ids"
)

// katalystClasses maps Katalyst's QoS levels, which are case sensitive.
var katalystClasses = map[string]Class{
	"dedicated_cores": Dedicated, "shared_cores": Shared, "reclaimed_cores": Reclaimed, "system_cores": System,
}

// readKatalyst reads the QoS level and the enhancements, which are the members of Katalyst's JSON annotations. If two
// enhancements contradict each other, the enhancement with more isolation has priority, and readKatalyst reports the
// other one. The order of the keys does not matter.
func readKatalyst(t *podTexts, _ *lifecycle.PodSpec, out *Pod) {
	k := katalystReader{pod: out, values: map[string]string{}, sourceKeys: map[string]string{}}
	for _, object := range []string{KatalystCPU, KatalystMemory, KatalystNetwork} {
		k.addObject(t, object)
	}
	k.addAnnotations(t, KatalystNUMANumber, KatalystNUMAIDs)
	k.readClass(t)
	k.readPool()
	k.readNUMA()
	if text := t.annotation(KatalystBindResult); text != "" {
		if ids := k.parseNodes(KatalystBindResult, text); len(ids) > 0 {
			out.Nodes = Sourced[[]int]{ids, KatalystBindResult}
		}
	}
	k.reportUnserved()
}

// katalystReader reads a pod's enhancements. It first merges the enhancements of all JSON objects, like Katalyst.
type katalystReader struct {
	pod        *Pod
	values     map[string]string // the value of each enhancement, by its name
	sourceKeys map[string]string // the annotation of each value, by the name of the enhancement
	used       []string          // the enhancements that were read
}

// addObject adds the enhancements of the annotation with one JSON object. All values must be strings, because Katalyst
// ignores an object that has a value of another type.
func (k *katalystReader) addObject(t *podTexts, annotation string) {
	var members map[string]string
	if !t.decode(annotation, &members, k.pod) {
		return
	}
	for _, key := range sortedKeys(members) {
		k.add(key, members[key], annotation)
	}
}

// addAnnotations adds the enhancements that have their own annotations.
func (k *katalystReader) addAnnotations(t *podTexts, keys ...string) {
	for _, key := range keys {
		if text := t.annotation(key); text != "" {
			k.add(key, text, key)
		}
	}
}

// add adds an enhancement from an annotation. An earlier value has priority.
func (k *katalystReader) add(key, value, from string) {
	if have, twice := k.values[key]; twice {
		if have != value {
			k.pod.reportMalformed(from, value, "%s: %s has the value %q, which has priority", printable(key), k.sourceKeys[key], printable(have))
		}
		return
	}
	k.values[key], k.sourceKeys[key] = value, from
}

// value returns an enhancement and the annotation that has it. It also notes that the enhancement was read.
func (k *katalystReader) value(key string) (value, from string) {
	k.used = append(k.used, key)
	return k.values[key], k.sourceKeys[key]
}

// boolean reads an enhancement that is "true" or "false". It returns defaultValue if the enhancement is missing or
// malformed. The result from is the annotation of the enhancement.
func (k *katalystReader) boolean(key string, defaultValue bool) (yes bool, from string) {
	value, from := k.value(key)
	switch {
	case from == "":
		return defaultValue, ""
	case value == "true" || value == "false":
		return value == "true", from
	}
	k.pod.reportMalformed(from, value, `%s: want the string "true" or "false"`, key)
	return defaultValue, ""
}

// parseNodes parses a list of NUMA nodes. If the list is malformed, parseNodes adds a problem with the annotation from.
func (k *katalystReader) parseNodes(from, text string) []int {
	ids, err := topology.ParseList(text)
	if err != nil {
		k.pod.reportMalformed(from, text, "NUMA nodes: %v", err)
	}
	return ids
}

// readClass reads the pod's class from its QoS level. A pod that has enhancements but no QoS level gets the class
// Shared.
func (k *katalystReader) readClass(t *podTexts) {
	name := t.annotation(KatalystQoSLevel)
	class, known := katalystClasses[name]
	switch {
	case known:
		k.pod.Class, k.pod.ClassName = Sourced[Class]{class, KatalystQoSLevel}, name
	case name != "":
		k.pod.reportMalformed(KatalystQoSLevel, name, "not a QoS level: want dedicated_cores, shared_cores, reclaimed_cores or system_cores")
	case len(k.values) > 0: // a pod with enhancements and without a QoS level gets the default level
		first := slices.Min(sortedKeys(k.values))
		k.pod.Class, k.pod.ClassName = Sourced[Class]{Shared, k.sourceKeys[first]}, "shared_cores"
	}
}

// katalystPools are the names of pools that no pod of class shared may request, because the agent makes these pools.
var katalystPools = []string{"reclaim", "dedicated", "reserve", "interrupt", "fallback"}

// readPool reads the pool that the pod requests (cpuset_pool). Only pods of some classes can request a pool.
func (k *katalystReader) readPool() {
	name, from := k.value("cpuset_pool")
	class := k.pod.Class.V
	switch {
	case from == "" || name == "":
	case class != Shared && class != System:
		k.pod.reportMalformed(from, name, "cpuset_pool: only pods of shared_cores and system_cores can name their pool")
	case !isPoolName(name):
		k.pod.reportMalformed(from, name, "cpuset_pool: not the name of a pool: want up to %d letters, digits, dots, dashes and underscores", maxPoolName)
	case class == Shared && slices.Contains(katalystPools, name):
		k.pod.reportRefused(from, name, "cpuset_pool: the agent uses a pool of this name itself; use another name")
	default:
		k.pod.Pool = Sourced[string]{name, from}
	}
}

// maxPoolName is the greatest length of the name of a pool, in bytes.
const maxPoolName = 63

// isPoolName reports whether a text can be the name of a pool. The text must not be empty.
func isPoolName(s string) bool {
	if len(s) > maxPoolName || strings.Trim(s[:1], "-._") == "" {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r) {
			return false
		}
	}
	return true
}

// readNUMA reads the pod's request for NUMA nodes.
func (k *katalystReader) readNUMA() {
	bound, from := k.boolean("numa_binding", false)
	var n NUMABinding
	share, sharing := k.boolean("numa_share", true)
	n.ExcludeOthers = !share
	for _, f := range []struct {
		key  string
		into *bool
	}{
		{"numa_exclusive", &n.Exclusive},
		{"align_by_socket", &n.BySocket},
		{"distribute_evenly_across_numa", &n.Even},
		{"full_pcpus_pairing", &n.WholeCores},
	} {
		yes, at := k.boolean(f.key, false)
		switch {
		case !yes:
		case k.pod.Class.V != Dedicated:
			k.pod.reportMalformed(at, "true", "%s: only for pods of dedicated_cores", f.key)
		case !bound:
			k.pod.reportMalformed(at, "true", "%s: only together with numa_binding", f.key)
		default:
			*f.into = true
		}
	}
	k.readNodeCount(&n, bound)
	k.dropContradictions(&n)
	switch {
	case bound:
		k.pod.NUMA = Sourced[NUMABinding]{n, from}
	case n.ExcludeOthers:
		k.pod.reportMalformed(sharing, "false", "numa_share: only together with numa_binding")
	}
}

// readNodeCount reads the number of NUMA nodes, or their ids.
func (k *katalystReader) readNodeCount(n *NUMABinding, bound bool) {
	ids, atIDs := k.value(KatalystNUMAIDs)
	number, atNumber := k.value(KatalystNUMANumber)
	if !bound || k.pod.Class.V != Dedicated {
		for _, key := range []string{KatalystNUMAIDs, KatalystNUMANumber} {
			if at := k.sourceKeys[key]; at != "" {
				k.pod.reportMalformed(at, k.values[key], "%s: only for pods of dedicated_cores with numa_binding", key)
			}
		}
		return
	}
	if atIDs != "" {
		n.IDs = k.parseNodes(atIDs, ids)
	}
	if atNumber == "" {
		return
	}
	count, err := strconv.Atoi(number)
	switch {
	case err != nil || count < 1 || count > topology.MaxNodes:
		k.pod.reportMalformed(atNumber, number, "%s: want a number from 1 to %d", KatalystNUMANumber, topology.MaxNodes)
	case len(n.IDs) > 0 && len(n.IDs) != count:
		k.pod.reportMalformed(atNumber, number, "%s: %s lists %d nodes, and has priority", KatalystNUMANumber, KatalystNUMAIDs, len(n.IDs))
	case len(n.IDs) == 0:
		n.Count = count
	}
}

// dropContradictions removes and reports options that exclude each other. Katalyst refuses pods with such options.
func (k *katalystReader) dropContradictions(n *NUMABinding) {
	drop := func(key string, flag *bool, why string) {
		*flag = false
		k.pod.reportMalformed(k.sourceKeys[key], "true", "%s: %s", key, why)
	}
	if n.Exclusive && n.WholeCores {
		drop("full_pcpus_pairing", &n.WholeCores, "not together with numa_exclusive, which gives whole NUMA nodes")
	}
	if n.Exclusive && n.Even {
		drop("distribute_evenly_across_numa", &n.Even, "not together with numa_exclusive, which gives whole NUMA nodes")
	}
	if n.Even && max(n.Count, len(n.IDs)) < 2 {
		drop("distribute_evenly_across_numa", &n.Even, "needs more than one NUMA node, by numa_number or numa_ids")
	}
}

// reportUnserved reports unknown enhancements, and enhancements that the agent does not serve.
func (k *katalystReader) reportUnserved() {
	for _, key := range sortedKeys(k.values) {
		if slices.Contains(k.used, key) {
			continue
		}
		if why, known := unservedEnhancement(key); known {
			k.pod.reportUnserved(k.sourceKeys[key], k.values[key], "%s is not supported: %s", key, why)
			continue
		}
		k.pod.reportWarning(k.sourceKeys[key], k.values[key], "%s is not an enhancement of Katalyst that this agent knows", printable(key))
	}
}
