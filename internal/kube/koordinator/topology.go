package koordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/topology"
)

// Annotations of a NodeResourceTopology that configure a node.
const (
	managerPolicy = "kubelet.koordinator.sh/cpu-manager-policy"
	systemQoS     = prefix + "system-qos-resource"
	sharedPools   = prefix + "cpu-shared-pools"
	batchPools    = prefix + "be-cpu-shared-pools"
)

// reportAnnotations are annotations of a NodeResourceTopology that only report on the node's CPUs, and configure
// nothing.
var reportAnnotations = []string{prefix + "cpu-topology", prefix + "pod-cpu-allocs", prefix + "cpu-basic-info"}

// agentName is the name of Trimtab's field manager.
const agentName = "trimtab"

// DropOwnAnnotations removes from a NodeResourceTopology the annotations that Trimtab itself wrote as its report. Only
// the annotations of other programs remain. The managed fields of the object show which annotations Trimtab wrote.
func DropOwnAnnotations(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	for _, m := range o.GetManagedFields() {
		if m.Manager == agentName {
			for key := range annotationsOf(m) {
				delete(annotations, strings.TrimPrefix(key, "f:"))
			}
		}
	}
	o.SetAnnotations(annotations)
}

// annotationsOf returns the keys of the annotations that a field manager owns, each with the prefix "f:".
func annotationsOf(m metav1.ManagedFieldsEntry) map[string]any {
	if m.FieldsV1 == nil {
		return nil
	}
	var fields struct {
		Metadata struct {
			Annotations map[string]any `json:"f:annotations"`
		} `json:"f:metadata"`
	}
	if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil
	}
	return fields.Metadata.Annotations
}

// TopologyLayer returns a layer with the values of a NodeResourceTopology's annotations, and false if none of them sets
// a key of Trimtab. The list has Koordinator's annotations that have no effect in Trimtab, with the reasons.
func TopologyLayer(o *unstructured.Unstructured) (config.Layer, bool, []string) {
	k, source := configKeys{}, "NodeResourceTopology "+o.GetName()
	annotations := o.GetAnnotations()
	var unknown []string
	noteUnknown := func(key string, why error) { unknown = append(unknown, fmt.Sprintf("%s: %s: %v", source, key, why)) }
	reserved, err := cpusOf(annotations[managerPolicy], "reservedCPUs")
	if err != nil {
		noteUnknown(managerPolicy, err)
	}
	system, err := cpusOf(annotations[systemQoS], "cpuset")
	if err != nil {
		noteUnknown(systemQoS, err)
	}
	k.setPools(reserved, system, isExclusive(annotations[systemQoS]))
	for key, pool := range map[string]string{sharedPools: "shared", batchPools: "reclaimed"} {
		cpus, err := poolOf(annotations[key])
		switch {
		case err != nil:
			noteUnknown(key, err)
		case cpus != "":
			k.set(cpus, "pools", pool)
		}
	}
	known := append([]string{managerPolicy, systemQoS, sharedPools, batchPools}, reportAnnotations...)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if host, _, _ := strings.Cut(key, "/"); strings.HasSuffix(host, "koordinator.sh") && !slices.Contains(known, key) {
			noteUnknown(key, errors.New("the agent does not read this annotation"))
		}
	}
	slices.Sort(unknown)
	l, ok := k.layer(source, "")
	return l, ok, unknown
}

// poolOf returns the list of a pool's CPUs. text is the annotation, which has a list of CPUs for each NUMA node.
func poolOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	var parts []struct {
		CPUs string `json:"cpuset"`
	}
	if err := json.Unmarshal([]byte(text), &parts); err != nil {
		return "", fmt.Errorf("not JSON: %w", err)
	}
	var lists []string
	for _, p := range parts {
		if _, err := topology.ParseList(p.CPUs); err != nil {
			return "", fmt.Errorf("cpuset: %w", err)
		}
		if p.CPUs != "" {
			lists = append(lists, p.CPUs)
		}
	}
	return strings.Join(lists, ","), nil
}

// setPools sets the key pools.system to the list of CPUs in the parameter system, and pools.reserved to the list in
// reserved. If exclusive is true, pools.reserved also gets the CPUs in system. A key without CPUs is not set.
func (k configKeys) setPools(reserved, system string, exclusive bool) {
	if system != "" {
		k.set(system, "pools", "system")
		if exclusive {
			reserved = strings.TrimPrefix(reserved+","+system, ",")
		}
	}
	if reserved != "" {
		k.set(reserved, "pools", "reserved")
	}
}
