package adopt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// parseKubeletCPUs reads the state of the kubelet's CPU manager. With the policy "static" the file lists exclusive CPUs
// by pod and container. All other containers run on the default CPU set.
func parseKubeletCPUs(text []byte) ([]lifecycle.FormerContainer, error) {
	var state struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries"`
	}
	if err := decodeJSON(text, &state); err != nil {
		return nil, err
	}
	if state.PolicyName != "static" {
		return nil, nil // with the policy "none" the kubelet assigns no CPUs to containers
	}
	var out []lifecycle.FormerContainer
	shared, err := normalizeList(state.DefaultCPUSet)
	if err != nil {
		return nil, fmt.Errorf("defaultCpuSet: %w", err)
	}
	if shared != "" {
		out = append(out, lifecycle.FormerContainer{CPUs: shared, Class: "shared", Where: "defaultCpuSet"})
	}
	for _, uid := range slices.Sorted(maps.Keys(state.Entries)) {
		for _, name := range slices.Sorted(maps.Keys(state.Entries[uid])) {
			where := "entries." + uid + "." + name
			cpus, err := normalizeList(state.Entries[uid][name])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", shorten(where), err)
			}
			if cpus == "" {
				continue
			}
			out = append(out, lifecycle.FormerContainer{PodUID: uid, Container: name, CPUs: cpus, Exclusive: true, Class: "exclusive", Where: where})
		}
	}
	return out, nil
}

// parseKubeletMemory reads the state of the kubelet's memory manager: the memory nodes of containers of Guaranteed
// pods, by pod and container. The file has a block for each kind of memory, such as huge pages. The result has the
// nodes of all blocks.
func parseKubeletMemory(text []byte) ([]lifecycle.FormerContainer, error) {
	var state struct {
		PolicyName string `json:"policyName"`
		Entries    map[string]map[string][]struct {
			NUMAAffinity []int `json:"numaAffinity"`
		} `json:"entries"`
	}
	if err := decodeJSON(text, &state); err != nil {
		return nil, err
	}
	var out []lifecycle.FormerContainer
	for _, uid := range slices.Sorted(maps.Keys(state.Entries)) {
		for _, name := range slices.Sorted(maps.Keys(state.Entries[uid])) {
			where := "entries." + uid + "." + name
			var nodes []int
			for _, block := range state.Entries[uid][name] {
				nodes = append(nodes, block.NUMAAffinity...)
			}
			slices.Sort(nodes)
			mems, err := normalizeList(topology.FormatList(slices.Compact(nodes)))
			if err != nil {
				return nil, fmt.Errorf("%s: numaAffinity: %w", shorten(where), err)
			}
			if mems != "" {
				out = append(out, lifecycle.FormerContainer{PodUID: uid, Container: name, Mems: mems, Where: where})
			}
		}
	}
	return out, nil
}
