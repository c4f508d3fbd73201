package adopt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// parseKatalystCPUs reads the state of Katalyst's CPU plugin: the CPUs of each container. An entry without a container
// name is a pool of CPUs, and is not in the result.
func parseKatalystCPUs(text []byte) ([]lifecycle.FormerContainer, error) {
	var state struct {
		PodEntries map[string]map[string]struct {
			Pool     string `json:"owner_pool_name"`
			QoSLevel string `json:"qosLevel"`
			Result   string `json:"allocation_result"`
		} `json:"pod_entries"`
	}
	if err := decodeJSON(text, &state); err != nil {
		return nil, err
	}
	var out []lifecycle.FormerContainer
	for _, uid := range slices.Sorted(maps.Keys(state.PodEntries)) {
		for _, name := range slices.Sorted(maps.Keys(state.PodEntries[uid])) {
			e, where := state.PodEntries[uid][name], "pod_entries."+uid+"."+name
			cpus, err := normalizeList(e.Result)
			if err != nil {
				return nil, fmt.Errorf("%s: allocation_result: %w", shorten(where), err)
			}
			if name == "" || uid == "" || cpus == "" {
				continue
			}
			row := lifecycle.FormerContainer{PodUID: uid, Container: name, CPUs: cpus, Exclusive: e.QoSLevel == "dedicated_cores", Class: e.QoSLevel, Where: where}
			if !row.Exclusive && e.Pool != "" {
				row.Class = e.Pool
			}
			out = append(out, row)
		}
	}
	return out, nil
}

// parseKatalystMemory reads the state of Katalyst's memory plugin: the memory nodes of each container.
func parseKatalystMemory(text []byte) ([]lifecycle.FormerContainer, error) {
	var state struct {
		Entries map[string]map[string]map[string]struct {
			Nodes string `json:"numa_allocation_result"`
		} `json:"pod_resource_entries"`
	}
	if err := decodeJSON(text, &state); err != nil {
		return nil, err
	}
	var out []lifecycle.FormerContainer
	for _, uid := range slices.Sorted(maps.Keys(state.Entries["memory"])) {
		for _, name := range slices.Sorted(maps.Keys(state.Entries["memory"][uid])) {
			where := "pod_resource_entries.memory." + uid + "." + name
			mems, err := normalizeList(state.Entries["memory"][uid][name].Nodes)
			if err != nil {
				return nil, fmt.Errorf("%s: numa_allocation_result: %w", shorten(where), err)
			}
			if name != "" && uid != "" && mems != "" {
				out = append(out, lifecycle.FormerContainer{PodUID: uid, Container: name, Mems: mems, Where: where})
			}
		}
	}
	return out, nil
}
