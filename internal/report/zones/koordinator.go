package zones

import "encoding/json"

// Koordinator are the annotations that Koordinator's scheduler reads on a
// NodeResourceTopology (Koordinator a7a1b76, apis/extension).
func (n Node) Koordinator() map[string]string {
	type detail struct {
		ID     int `json:"id"`
		Core   int `json:"core"`
		Socket int `json:"socket"`
		Node   int `json:"node"`
	}
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
		// The scheduler knows all other pods from its own annotation.
		ByKubelet bool `json:"managedByKubelet"`
	}
	var cpus struct {
		Detail []detail `json:"detail"`
	}
	shared, reclaimed, allocs := []share{}, []share{}, []alloc{}
	for _, c := range n.CPUs {
		cpus.Detail = append(cpus.Detail, detail(c))
	}
	for _, z := range n.Zones {
		if z.Shared != "" {
			shared = append(shared, share{z.Socket, z.ID, z.Shared})
		}
		if z.Reclaimed != "" {
			reclaimed = append(reclaimed, share{z.Socket, z.ID, z.Reclaimed})
		}
	}
	for _, o := range n.Owners {
		allocs = append(allocs, alloc{o.Pod.Namespace, o.Pod.Name, o.Pod.UID, o.CPUs, !o.Assigned})
	}
	policy := map[string]any{"policy": "none"}
	if n.ByKubelet {
		policy["policy"] = "static"
	}
	if n.Reserved != "" {
		policy["reservedCPUs"] = n.Reserved
	}
	return map[string]string{
		"node.koordinator.sh/cpu-topology":          text(cpus),
		"node.koordinator.sh/cpu-shared-pools":      text(shared),
		"node.koordinator.sh/be-cpu-shared-pools":   text(reclaimed),
		"node.koordinator.sh/pod-cpu-allocs":        text(allocs),
		"kubelet.koordinator.sh/cpu-manager-policy": text(policy),
	}
}

// text returns the JSON of values for which encoding cannot fail.
func text(v any) string {
	out, _ := json.Marshal(v) // numbers, strings and booleans
	return string(out)
}
