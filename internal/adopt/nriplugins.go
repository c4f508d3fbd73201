package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// parseNRIPluginsCache reads the cache file of nri-plugins. The file has the containers as NRI describes them, with the
// CPUs and memory nodes that nri-plugins' resource policy gave them. If this policy is topology-aware, the file also
// has a JSON string with the pool and the exclusive CPUs of each container.
func parseNRIPluginsCache(text []byte) ([]lifecycle.FormerContainer, error) {
	var cache struct {
		Containers map[string]struct {
			Ctr struct {
				Linux struct {
					Resources struct {
						CPU struct {
							CPUs string `json:"cpus"`
							Mems string `json:"mems"`
						} `json:"cpu"`
					} `json:"resources"`
				} `json:"linux"`
			} `json:"Ctr"`
		} `json:"Containers"`
		PolicyName string            `json:"PolicyName"`
		PolicyJSON map[string]string `json:"PolicyJSON"`
	}
	if err := decodeJSON(text, &cache); err != nil {
		return nil, err
	}
	grants := map[string]struct{ Exclusive, Pool string }{}
	if entry := cache.PolicyJSON["allocations"]; entry != "" {
		if err := decodeJSON([]byte(entry), &grants); err != nil {
			return nil, fmt.Errorf("PolicyJSON.allocations: %w", err)
		}
	}
	var out []lifecycle.FormerContainer
	for _, id := range slices.Sorted(maps.Keys(cache.Containers)) {
		where, given := "Containers."+id, cache.Containers[id].Ctr.Linux.Resources.CPU
		row := lifecycle.FormerContainer{ID: id, Class: cmp.Or(grants[id].Pool, cache.PolicyName), Where: where}
		var exclusive string
		var err error
		for _, l := range []struct {
			of, text string
			into     *string
		}{{"cpus", given.CPUs, &row.CPUs}, {"mems", given.Mems, &row.Mems}, {"Exclusive", grants[id].Exclusive, &exclusive}} {
			if *l.into, err = normalizeList(l.text); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", shorten(where), l.of, err)
			}
		}
		row.Exclusive = row.CPUs != "" && exclusive == row.CPUs
		if id != "" && row.CPUs+row.Mems != "" {
			out = append(out, row)
		}
	}
	return out, nil
}
