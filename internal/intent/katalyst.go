package intent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Keys of Katalyst's protocol (katalyst-api of 2026-08, katalyst-core 0.5) that
// are read on the node.
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

// readKatalyst reads the QoS level and the enhancements. If two enhancements contradict each
// other, the one with more isolation counts, and the other is reported. The order of keys does
// not matter.
func readKatalyst(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	k := katalyst{out: out, values: map[string]string{}, from: map[string]string{}}
	for _, object := range []string{KatalystCPU, KatalystMemory, KatalystNetwork} {
		k.flatten(t, object)
	}
	k.plain(t, KatalystNUMANumber, KatalystNUMAIDs)
	k.class(t)
	k.pool()
	k.numa()
	if text := t.annotation(KatalystBindResult); text != "" {
		if ids := k.list(KatalystBindResult, text); len(ids) > 0 {
			out.Nodes = Sourced[[]int]{ids, KatalystBindResult}
		}
	}
	k.reportUnserved()
}

// katalyst has a pod's enhancements, merged from all JSON objects, as Katalyst does first.
type katalyst struct {
	out    *Pod
	values map[string]string
	from   map[string]string // the annotation that a value came from
	used   []string
}

// flatten adds the keys of one JSON object. All values are strings: Katalyst ignores an object
// with another value.
func (k *katalyst) flatten(t *texts, object string) {
	var said map[string]string
	if !t.decode(object, &said, k.out) {
		return
	}
	for _, key := range sortedKeys(said) {
		k.add(key, said[key], object)
	}
}

// plain adds enhancements that are annotations of their own.
func (k *katalyst) plain(t *texts, keys ...string) {
	for _, key := range keys {
		if text := t.annotation(key); text != "" {
			k.add(key, text, key)
		}
	}
}

func (k *katalyst) add(key, value, from string) {
	if have, twice := k.values[key]; twice {
		if have != value {
			k.out.problem(from, value, "%s: %s is %q, and has priority", printable(key), k.from[key], printable(have))
		}
		return
	}
	k.values[key], k.from[key] = value, from
}

// take returns an enhancement and the annotation that it came from.
func (k *katalyst) take(key string) (value, from string) {
	k.used = append(k.used, key)
	return k.values[key], k.from[key]
}

// flag reads an enhancement that is "true" or "false".
func (k *katalyst) flag(key string, absent bool) (yes bool, from string) {
	value, from := k.take(key)
	switch {
	case from == "":
		return absent, ""
	case value == "true" || value == "false":
		return value == "true", from
	}
	k.out.problem(from, value, `%s: want "true" or "false", in a string`, key)
	return absent, ""
}

func (k *katalyst) list(from, text string) []int {
	ids, err := topology.ParseList(text)
	if err != nil {
		k.out.problem(from, text, "NUMA nodes: %v", err)
	}
	return ids
}

func (k *katalyst) class(t *texts) {
	name := t.annotation(KatalystQoSLevel)
	class, known := katalystClasses[name]
	switch {
	case known:
		k.out.Class, k.out.Name = Sourced[Class]{class, KatalystQoSLevel}, name
	case name != "":
		k.out.problem(KatalystQoSLevel, name, "not a QoS level: dedicated_cores, shared_cores, reclaimed_cores or system_cores")
	case len(k.values) > 0: // a pod with enhancements has the default level
		first := slices.Min(sortedKeys(k.values))
		k.out.Class, k.out.Name = Sourced[Class]{Shared, k.from[first]}, "shared_cores"
	}
}

// katalystPools are names that no shared pod may use, since the agent makes these pools.
var katalystPools = []string{"reclaim", "dedicated", "reserve", "interrupt", "fallback"}

func (k *katalyst) pool() {
	name, from := k.take("cpuset_pool")
	class := k.out.Class.V
	switch {
	case from == "" || name == "":
	case class != Shared && class != System:
		k.out.problem(from, name, "cpuset_pool: only pods of shared_cores and system_cores can name their pool")
	case !poolName(name):
		k.out.problem(from, name, "cpuset_pool: not a name of up to %d letters, digits, dots, dashes and underscores", maxPoolName)
	case class == Shared && slices.Contains(katalystPools, name):
		k.out.refuse(from, name, "cpuset_pool: the agent uses this pool itself")
	default:
		k.out.Pool = Sourced[string]{name, from}
	}
}

const maxPoolName = 63

func poolName(s string) bool {
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

// numa reads the pod's request for NUMA nodes.
func (k *katalyst) numa() {
	bound, from := k.flag("numa_binding", false)
	var n NUMABinding
	share, sharing := k.flag("numa_share", true)
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
		yes, at := k.flag(f.key, false)
		switch {
		case !yes:
		case k.out.Class.V != Dedicated:
			k.out.problem(at, "true", "%s: only for pods of dedicated_cores", f.key)
		case !bound:
			k.out.problem(at, "true", "%s: only together with numa_binding", f.key)
		default:
			*f.into = true
		}
	}
	k.count(&n, bound)
	k.contradictions(&n)
	switch {
	case bound:
		k.out.NUMA = Sourced[NUMABinding]{n, from}
	case n.ExcludeOthers:
		k.out.problem(sharing, "false", "numa_share: only together with numa_binding")
	}
}

// count reads the number of nodes, or their ids.
func (k *katalyst) count(n *NUMABinding, bound bool) {
	ids, atIDs := k.take(KatalystNUMAIDs)
	number, atNumber := k.take(KatalystNUMANumber)
	if !bound || k.out.Class.V != Dedicated {
		for _, key := range []string{KatalystNUMAIDs, KatalystNUMANumber} {
			if at := k.from[key]; at != "" {
				k.out.problem(at, k.values[key], "%s: only for pods of dedicated_cores with numa_binding", key)
			}
		}
		return
	}
	if atIDs != "" {
		n.IDs = k.list(atIDs, ids)
	}
	if atNumber == "" {
		return
	}
	count, err := strconv.Atoi(number)
	switch {
	case err != nil || count < 1 || count > topology.MaxNodes:
		k.out.problem(atNumber, number, "%s: want a number from 1 to %d", KatalystNUMANumber, topology.MaxNodes)
	case len(n.IDs) > 0 && len(n.IDs) != count:
		k.out.problem(atNumber, number, "%s: %s lists %d nodes, and has priority", KatalystNUMANumber, KatalystNUMAIDs, len(n.IDs))
	case len(n.IDs) == 0:
		n.Count = count
	}
}

// contradictions drops keys that exclude each other, which Katalyst refuses.
func (k *katalyst) contradictions(n *NUMABinding) {
	drop := func(key string, flag *bool, why string) {
		*flag = false
		k.out.problem(k.from[key], "true", "%s: %s", key, why)
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
func (k *katalyst) reportUnserved() {
	for _, key := range sortedKeys(k.values) {
		if slices.Contains(k.used, key) {
			continue
		}
		if why, known := unusedEnhancement(key); known {
			k.out.unserved(k.from[key], k.values[key], "%s is not supported: %s", key, why)
			continue
		}
		k.out.warn(k.from[key], k.values[key], "%s is not an enhancement of Katalyst that this agent knows", printable(key))
	}
}
