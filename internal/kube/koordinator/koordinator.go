// Package koordinator reads what Koordinator's manager configures for a node: the NodeSLO of the node, and annotations
// of the Node and of the NodeResourceTopology. For each of these objects, it returns a config.Layer: a document that is
// merged into Trimtab's configuration. The formats are those of Koordinator 1.7, slo.koordinator.sh/v1alpha1. The
// package sends no requests.
package koordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/topology"
)

// Version is the apiVersion of the NodeSLO that this package reads.
const Version = "slo.koordinator.sh/v1alpha1"

// prefix is the prefix of Koordinator's annotations and labels of a Node.
const prefix = "node.koordinator.sh/"

// configKeys are the keys and values of a configuration of Trimtab. The value of a section is a map.
type configKeys map[string]any

// set sets the value of a key. path has the names of the sections above the key, and then the key.
func (k configKeys) set(value any, path ...string) {
	at := map[string]any(k)
	for _, section := range path[:len(path)-1] {
		below, ok := at[section].(map[string]any)
		if !ok {
			below = map[string]any{}
			at[section] = below
		}
		at = below
	}
	at[path[len(path)-1]] = value
}

// layer returns a layer that sets the keys, and false if there are no keys.
func (k configKeys) layer(name, version string) (config.Layer, bool) {
	if len(k) == 0 {
		return config.Layer{}, false
	}
	k["apiVersion"], k["kind"] = config.APIVersion, config.Kind
	data, err := yaml.Marshal(map[string]any(k))
	if err != nil {
		return config.Layer{}, false // never happens: YAML can represent all values
	}
	return config.Layer{Name: name, Version: version, Data: data, Shared: true}, true
}

// NodeSLOLayer returns a layer with the values of a NodeSLO, and false if the NodeSLO sets no key that Trimtab has. The
// list has the settings of the NodeSLO that have no effect in Trimtab. If Trimtab has a key with a similar effect, the
// list also names this key.
func NodeSLOLayer(o *unstructured.Unstructured) (config.Layer, bool, []string) {
	name := strings.TrimSpace("NodeSLO " + o.GetName()) // a NodeSLO in a file may have no name
	if o.GetAPIVersion() != Version {
		return config.Layer{}, false, []string{fmt.Sprintf("%s: apiVersion %s is unknown; Trimtab reads %s", name, o.GetAPIVersion(), Version)}
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	s := sloReader{keys: configKeys{}}
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		value, _ := spec[key].(map[string]any)
		switch key {
		case "resourceQOSStrategy":
			s.readStrategy(value)
		case "resourceUsedThresholdWithBE":
			if value["enable"] == true {
				s.noteUnread("spec." + key)
			}
		case "cpuBurstStrategy":
			if p := value["policy"]; p != nil && p != "none" {
				s.noteUnread("spec." + key)
			}
		default:
			if !isEmpty(spec[key]) {
				s.noteUnread("spec." + key)
			}
		}
	}
	var unknown []string
	for _, key := range s.unread {
		unknown = append(unknown, name+": "+key)
	}
	l, ok := s.keys.layer(name, o.GetResourceVersion())
	return l, ok, unknown
}

// isEmpty reports whether a JSON value is null, an object without keys, or an empty list.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// sloReader collects what NodeSLOLayer returns.
type sloReader struct {
	keys   configKeys // the keys of Trimtab that the NodeSLO sets
	unread []string   // the fields of the NodeSLO that are set, but have no effect in Trimtab
}

// noteUnread adds a field of the NodeSLO to unread. If Trimtab has a key with a similar effect, noteUnread also adds
// the name of this key.
func (s *sloReader) noteUnread(key string) {
	if similar := similarKeys[key[strings.LastIndexByte(key, '.')+1:]]; similar != "" {
		key += ": similar in Trimtab: " + similar
	}
	s.unread = append(s.unread, key)
}

// similarKeys has fields of a NodeSLO that Trimtab does not read, and for each field a key of Trimtab with a similar
// effect.
var similarKeys = map[string]string{
	"blkioQOS":                    "hooks.blockIO",
	"cpuBurstStrategy":            "hooks.burst",
	"resourceUsedThresholdWithBE": "placement.reclaim: leftover",
	"systemClass":                 "pools.system",
}

// sloClasses are the classes in resourceQOSStrategy. identity and cacheEnd are Koordinator's defaults for a class that
// is enabled.
var sloClasses = []struct {
	name     string
	ours     string // the name of the class in Trimtab's keys
	identity int64  // the group identity
	cacheEnd int64  // the end of the class's range of the cache, in percent
}{
	{"lsrClass", "lsr", 2, 100}, {"lsClass", "ls", 2, 100}, {"beClass", "be", -1, 30},
}

// readStrategy reads resourceQOSStrategy. If cpuQOS or resctrlQOS of a class is not enabled, readStrategy sets neutral
// values: the group identity 0, or the whole cache and the whole bandwidth.
func (s *sloReader) readStrategy(strategy map[string]any) {
	policy, _, _ := unstructured.NestedString(strategy, "policies", "cpuPolicy")
	var cpu, cache bool
	for _, c := range sloClasses {
		class, ok := strategy[c.name].(map[string]any)
		if !ok {
			continue
		}
		if q, isSet := class["cpuQOS"].(map[string]any); isSet {
			on := q["enable"] == true
			cpu = cpu || on
			s.keys.set(valueIf(on, intValue(q, "groupIdentity", c.identity), 0), "hooks", "groupIdentity", c.ours)
		}
		if q, isSet := class["resctrlQOS"].(map[string]any); isSet {
			on := q["enable"] == true
			cache = cache || on
			from, to := valueIf(on, intValue(q, "catRangeStartPercent", 0), 0), valueIf(on, intValue(q, "catRangeEndPercent", c.cacheEnd), 100)
			s.keys.set(fmt.Sprintf("%d-%d", from, to), "hooks", "rdt", c.ours+"Cache")
			s.keys.set(valueIf(on, intValue(q, "mbaPercent", 100), 100), "hooks", "rdt", c.ours+"Bandwidth")
		}
		s.noteUnreadParts(c.name, class)
	}
	for _, other := range []string{"systemClass", "cgroupRoot"} {
		if isEnabled(strategy[other]) {
			s.noteUnread("spec.resourceQOSStrategy." + other)
		}
	}
	if hooks, ok := s.keys["hooks"].(map[string]any); ok {
		if hooks["groupIdentity"] != nil {
			s.keys.set(cpu && policy != "coreSched", "hooks", "groupIdentity", "enabled")
			s.keys.set(cpu && policy == "coreSched", "hooks", "coreSched", "enabled")
		}
		if hooks["rdt"] != nil {
			s.keys.set(cache, "hooks", "rdt", "enabled")
		}
	}
}

// noteUnreadParts adds to unread the enabled fields of a class for which Trimtab has no key.
func (s *sloReader) noteUnreadParts(name string, class map[string]any) {
	for _, other := range []string{"memoryQOS", "blkioQOS", "networkQOS"} {
		if q, isSet := class[other].(map[string]any); isSet && q["enable"] == true {
			s.noteUnread("spec.resourceQOSStrategy." + name + "." + other)
		}
	}
}

// isEnabled reports whether a class has a field, such as cpuQOS, with enable: true.
func isEnabled(class any) bool {
	parts, _ := class.(map[string]any)
	for _, part := range parts {
		if q, ok := part.(map[string]any); ok && q["enable"] == true {
			return true
		}
	}
	return false
}

// valueIf returns v if enabled is true, and neutral if enabled is false.
func valueIf(enabled bool, v, neutral int64) int64 {
	if enabled {
		return v
	}
	return neutral
}

// intValue returns the whole number under a key of an object, or fallback if the object does not have the key. If the
// value is not a number, intValue returns a number that the validation of the configuration refuses.
func intValue(o map[string]any, key string, fallback int64) int64 {
	switch v := o[key].(type) {
	case nil:
		return fallback
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return -1 << 31
}

// NodeLayer returns a layer with the values of a Node's annotations and labels, and false if none of them sets a key of
// Trimtab. The list has Koordinator's annotations that have no effect in Trimtab, some with the reason.
func NodeLayer(name string, labels, annotations map[string]string) (config.Layer, bool, []string) {
	k, source := configKeys{}, "Node "+name
	var unknown []string
	noteUnknown := func(key, why string) { unknown = append(unknown, source+": "+prefix+key+why) }
	if text, ok := annotations[prefix+"cpu-normalization-ratio"]; ok {
		if r, err := strconv.ParseFloat(text, 64); err == nil && r <= 1 || labels[prefix+"cpu-normalization-enabled"] == "false" {
			k.set(false, "hooks", "normalization", "enabled")
		} else if _, err := hook.ParseRatio(text); err != nil {
			noteUnknown("cpu-normalization-ratio", fmt.Sprintf(": %v", err))
		} else {
			k.set(true, "hooks", "normalization", "enabled")
			k.set(text, "hooks", "normalization", "ratio")
		}
	}
	reserved, err := cpusOf(annotations[prefix+"reservation"], "reservedCPUs")
	if err != nil {
		noteUnknown("reservation", fmt.Sprintf(": %v", err))
	} else if _, isSet := annotations[prefix+"reservation"]; isSet && reserved == "" {
		noteUnknown("reservation", ": the annotation has no reservedCPUs")
	}
	system, err := cpusOf(annotations[prefix+"system-qos-resource"], "cpuset")
	if err != nil {
		noteUnknown("system-qos-resource", fmt.Sprintf(": %v", err))
	}
	k.setPools(reserved, system, isExclusive(annotations[prefix+"system-qos-resource"]))
	if _, ok := annotations[prefix+"network-bandwidth"]; ok {
		noteUnknown("network-bandwidth", "")
	}
	l, ok := k.layer(source, "")
	return l, ok, unknown
}

// cpusOf returns the list of CPUs under a key of an annotation. text is the annotation, a JSON object.
func cpusOf(text, key string) (string, error) {
	if text == "" {
		return "", nil
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	list, _ := o[key].(string)
	if _, err := topology.ParseList(list); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	return list, nil
}

// isExclusive reports whether only system services may use the CPUs of the annotation system-qos-resource. text is the
// annotation. isExclusive returns false if the annotation has cpusetExclusive: false, or is not JSON.
func isExclusive(text string) bool {
	var o struct {
		Exclusive *bool `json:"cpusetExclusive"`
	}
	return json.Unmarshal([]byte(text), &o) == nil && (o.Exclusive == nil || *o.Exclusive)
}
