package zones

import "encoding/json"

// Koordinator returns the annotations that Koordinator's scheduler reads on a NodeResourceTopology (Koordinator
// a7a1b76, apis/extension).
func (n Node) Koordinator() map[string]string {
	type share struct {
		Socket int    `json:"socket"`
		Node   int    `json:"node"`
		CPUs   string `json:"cpuset"`
	}
	type alloc struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
		CPUs      string `json:"cpuset"`
		// ByKubelet marks the pods for which the scheduler did not choose CPUs itself.
		ByKubelet bool `json:"managedByKubelet"`
	}
	shared, reclaimed, allocs := []share{}, []share{}, []alloc{}
	for _, z := range n.Zones {
		if z.SharedCPUs != "" {
			shared = append(shared, share{z.Socket, z.ID, z.SharedCPUs})
		}
		if z.ReclaimedCPUs != "" {
			reclaimed = append(reclaimed, share{z.Socket, z.ID, z.ReclaimedCPUs})
		}
	}
	for _, o := range n.Owners {
		allocs = append(allocs, alloc{o.Pod.Namespace, o.Pod.Name, o.Pod.UID, o.CPUs, !o.ByScheduler})
	}
	policy := map[string]any{"policy": "none"}
	if n.ByKubelet {
		policy["policy"] = "static"
	}
	if n.ReservedCPUs != "" {
		policy["reservedCPUs"] = n.ReservedCPUs
	}
	return map[string]string{
		"node.koordinator.sh/cpu-topology":          jsonText(map[string][]CPU{"detail": n.CPUs}),
		"node.koordinator.sh/cpu-shared-pools":      jsonText(shared),
		"node.koordinator.sh/be-cpu-shared-pools":   jsonText(reclaimed),
		"node.koordinator.sh/pod-cpu-allocs":        jsonText(allocs),
		"kubelet.koordinator.sh/cpu-manager-policy": jsonText(policy),
	}
}

// jsonText returns v as JSON. v must be a value that json.Marshal encodes without an error.
func jsonText(v any) string {
	out, _ := json.Marshal(v) // no error: v consists of numbers, strings and booleans
	return string(out)
}
