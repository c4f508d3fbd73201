// Package koordinator reads what Koordinator's manager configures for a node, and returns it as a layer of Trimtab's
// configuration: the NodeSLO of the node, and annotations of its Node and of its NodeResourceTopology. The formats are
// those of Koordinator 1.7, slo.koordinator.sh/v1alpha1. The package sends no requests.
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

const prefix = "node.koordinator.sh/"

// configKeys are keys of a configuration, by section.
type configKeys map[string]any

// set sets a key below sections.
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

// layer makes a layer of keys; false if there are none.
func (k configKeys) layer(name, version string) (config.Layer, bool) {
	if len(k) == 0 {
		return config.Layer{}, false
	}
	k["apiVersion"], k["kind"] = config.APIVersion, config.Kind
	data, err := yaml.Marshal(map[string]any(k))
	if err != nil {
		return config.Layer{}, false // cannot fail: only plain values
	}
	return config.Layer{Name: name, Version: version, Data: data, Shared: true}, true
}

// NodeSLOLayer returns the layer of a NodeSLO, and false if it sets no key that Trimtab has. It also lists the parts
// that have no effect, with the keys of Trimtab that have a similar effect, if there are any.
func NodeSLOLayer(o *unstructured.Unstructured) (config.Layer, bool, []string) {
	name := strings.TrimSpace("NodeSLO " + o.GetName()) // a file may have none
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

// sloReader collects the keys that a NodeSLO sets, and the parts of it that are not read.
type sloReader struct {
	keys   configKeys
	unread []string
}

// noteUnread adds to unread a part that is not read, and the keys of Trimtab that have a similar effect, if there are
// any.
func (s *sloReader) noteUnread(key string) {
	if see := similarKeys[key[strings.LastIndexByte(key, '.')+1:]]; see != "" {
		key += ": see " + see
	}
	s.unread = append(s.unread, key)
}

// similarKeys names the keys of a configuration that have a similar effect as a part of a NodeSLO that is not read.
var similarKeys = map[string]string{
	"blkioQOS":                    "hooks.blockIO",
	"cpuBurstStrategy":            "hooks.burst",
	"resourceUsedThresholdWithBE": "placement.reclaim: leftover",
	"systemClass":                 "pools.system",
}

// sloClasses are the classes of a strategy. Each has the name of the class in Trimtab's keys, and the defaults that
// apply if enable is true: its group identity, and the end of its part of the cache in percent.
var sloClasses = []struct {
	name, ours string
	identity   int64
	cacheEnd   int64
}{
	{"lsrClass", "lsr", 2, 100}, {"lsClass", "ls", 2, 100}, {"beClass", "be", -1, 30},
}

// readStrategy reads resourceQOSStrategy. A part of a class without enable: true gets values without an effect.
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

// noteUnreadParts adds to unread the enabled parts of a class that have no key in Trimtab.
func (s *sloReader) noteUnreadParts(name string, class map[string]any) {
	for _, other := range []string{"memoryQOS", "blkioQOS", "networkQOS"} {
		if q, isSet := class[other].(map[string]any); isSet && q["enable"] == true {
			s.noteUnread("spec.resourceQOSStrategy." + name + "." + other)
		}
	}
}

// isEnabled reports whether a part of a class is enabled.
func isEnabled(class any) bool {
	parts, _ := class.(map[string]any)
	for _, part := range parts {
		if q, ok := part.(map[string]any); ok && q["enable"] == true {
			return true
		}
	}
	return false
}

// valueIf returns v if on is true, and the value of the parameter otherwise if on is false.
func valueIf(on bool, v, otherwise int64) int64 {
	if on {
		return v
	}
	return otherwise
}

// intValue returns a whole number of an object. If the value has another type, intValue returns a value that the
// validation of the configuration refuses.
func intValue(o map[string]any, key string, missing int64) int64 {
	switch v := o[key].(type) {
	case nil:
		return missing
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return -1 << 31
}

// NodeLayer returns the layer of a Node's annotations and labels, and false if none of them sets a key of Trimtab. It
// also lists the annotations that have no effect.
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
		noteUnknown("reservation", " without reservedCPUs")
	}
	system, err := cpusOf(annotations[prefix+"system-qos-resource"], "cpuset")
	if err != nil {
		noteUnknown("system-qos-resource", fmt.Sprintf(": %v", err))
	}
	k.pools(reserved, system, isExclusive(annotations[prefix+"system-qos-resource"]))
	if _, ok := annotations[prefix+"network-bandwidth"]; ok {
		noteUnknown("network-bandwidth", "")
	}
	l, ok := k.layer(source, "")
	return l, ok, unknown
}

// cpusOf reads a list of CPUs from an annotation in JSON.
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

// isExclusive reports whether only system services may use the system's CPUs. This is so unless the annotation has
// cpusetExclusive: false.
func isExclusive(text string) bool {
	var o struct {
		Exclusive *bool `json:"cpusetExclusive"`
	}
	return json.Unmarshal([]byte(text), &o) == nil && (o.Exclusive == nil || *o.Exclusive)
}
