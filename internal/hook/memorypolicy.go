package hook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// MemoryPolicy gives the processes of containers the NUMA memory policy that their pod
// requests. The keys and values are those of NRI 0.12, plugin device-injector.
type MemoryPolicy struct {
	// Nodes are the memory nodes of the machine; empty if they are not known.
	Nodes []int
	// Classes has the memory policies in the configuration. A key is the name with which a pod requests the policy.
	Classes map[string]lifecycle.MemoryPolicy
}

// MemoryPolicyOptions tunes the hook of NUMA memory policies.
type MemoryPolicyOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Classes are policies that pods can name.
	Classes []MemoryPolicyClassOptions `json:"classes"`
}

// MemoryPolicyClassOptions is a NUMA memory policy with a name.
type MemoryPolicyClassOptions struct {
	// Name is the name of the class.
	Name string `json:"name" check:"memory policy class"`
	// Mode is a mode of set_mempolicy(2).
	Mode string `json:"mode" check:"MPOL_DEFAULT|MPOL_LOCAL|MPOL_PREFERRED|MPOL_PREFERRED_MANY|MPOL_BIND|MPOL_INTERLEAVE|MPOL_WEIGHTED_INTERLEAVE"`
	// Nodes is a list of memory nodes, or the name of a set that depends on the container:
	// all, allowed-mems (nodes that it may use), cpu-packages (nodes in the packages of its CPUs),
	// cpu-nodes (nodes of its CPUs), or max-dist:N (nodes with at most this distance from its CPUs
	// in the firmware's table).
	Nodes string `json:"nodes" check:"memory nodes of a policy"`
	// Flags are flags of set_mempolicy(2).
	Flags []string `json:"flags" check:"MPOL_F_STATIC_NODES|MPOL_F_RELATIVE_NODES|MPOL_F_NUMA_BALANCING"`
}

// Make makes the hook for a node.
func (o MemoryPolicyOptions) Make(n Node, _ *Options) (Hook, error) {
	h := MemoryPolicy{Nodes: n.Host().MemoryNodes, Classes: map[string]lifecycle.MemoryPolicy{}}
	for _, c := range o.Classes {
		policy, err := intent.CheckMemoryPolicy(lifecycle.MemoryPolicy{Mode: c.Mode, Nodes: c.Nodes, Flags: c.Flags})
		if err != nil {
			return nil, fmt.Errorf("hooks.memoryPolicy.classes: %s: %w", c.Name, err)
		}
		h.Classes[c.Name] = policy
	}
	return h, nil
}

// Info describes the hook.
func (MemoryPolicy) Info() Info {
	return Info{
		Name:     "memoryPolicy",
		About:    "the NUMA memory policy that a container's processes start with (set_mempolicy), in every mode",
		Stages:   []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:    []string{intent.NRIMemPolicy, intent.NRIMemoryPolicyText, intent.NRIMemoryPolicyClass},
		Sets:     []lifecycle.Field{lifecycle.MemPolicy},
		Compose:  "no other hook sets this field",
		TestedOn: "a model of the runtime only; no OCI runtime that applies memory policies was available",
		Differs: []string{
			"if the container may use none of the nodes, the agent reports that, and the creation does not fail",
			"modes and flags that the kernel refuses together are reported, and the creation does not fail",
			"runc applies the policy since version 1.4; older OCI runtimes ignore it, and the agent cannot detect that",
			"if one container has several keys, memory-policy.noderesource.dev has the highest priority, then policy, then class",
			"the nodes of cpu-packages, cpu-nodes and max-dist depend on the CPUs that the container is created with",
			"a running container keeps the policy that it was created with",
		},
	}
}

// Propose sets the memory policy of a container's processes.
func (h MemoryPolicy) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.MemPolicy, "memoryPolicy")
	if !ok {
		request, from, asks := scopedRequest(in, in.Intent.MemoryRequest, "memoryPolicy")
		if !asks {
			return
		}
		policy := request.V.MemoryPolicy
		if name := request.V.Class; name != "" {
			if policy, ok = h.Classes[name]; !ok {
				out.decline(request.Key, name, "no class of hooks.memoryPolicy.classes has this name")
				return
			}
			from.Text = "memory policy class " + name
		}
		policy.Nodes = h.resolve(in, policy.Nodes)
		asked, why = intent.Sourced[lifecycle.MemoryPolicy]{V: policy, Key: request.Key}, from
	}
	if allowed := h.allowedNodes(in); !h.isUsable(asked.V, allowed) {
		out.decline(asked.Key, asked.V.Text(), "memoryPolicy: the container may use none of these nodes")
		return
	}
	out.setText(in, lifecycle.MemPolicy, "", asked.V.Text(), why)
}

// resolve returns a list of memory nodes. If nodes is the name of a set, such as all or cpu-nodes, resolve returns the
// nodes of the set. If nodes is a list, resolve returns nodes unchanged.
func (h MemoryPolicy) resolve(in *Input, nodes string) string {
	distance, byDistance := intent.MaxDistance(nodes)
	var picks func(cpus topology.Set, node int) bool
	m := in.Machine
	switch {
	case nodes == intent.AllowedMems:
		return topology.FormatList(h.allowedNodes(in))
	case nodes == intent.AllNodes:
		return topology.FormatList(h.Nodes)
	case nodes == intent.CPUNodes:
		picks = func(cpus topology.Set, node int) bool { return !m.Nodes[node].CPUs.And(cpus).Empty() }
	case nodes == intent.CPUPackages:
		picks = func(cpus topology.Set, node int) bool {
			return !m.ExpandToGroups(topology.PackageLevel, cpus).And(m.Nodes[node].CPUs).Empty()
		}
	case byDistance:
		picks = func(cpus topology.Set, node int) bool {
			for from := range m.Nodes {
				if !m.Nodes[from].CPUs.And(cpus).Empty() && m.Distance(from, node) <= distance {
					return true
				}
			}
			return false
		}
	default:
		return nodes
	}
	if m == nil {
		return topology.FormatList(h.Nodes)
	}
	cpus := m.Online()
	if in.CPUs != "" {
		cpus = m.OnlineOf(in.CPUs)
	}
	var list []int
	for i := range m.Nodes {
		if picks(cpus, i) && (len(h.Nodes) == 0 || slices.Contains(h.Nodes, m.Nodes[i].ID)) {
			list = append(list, m.Nodes[i].ID)
		}
	}
	return topology.FormatList(list)
}

// allowedNodes returns the memory nodes that the container may use; empty if they are not known.
func (h MemoryPolicy) allowedNodes(in *Input) []int {
	list := in.Mems
	if in.Pristine != nil {
		list = cmp.Or(list, in.Pristine.CPU.Mems)
	}
	if nodes, err := parseNodes(list); err == nil && len(nodes) > 0 {
		return nodes
	}
	return h.Nodes
}

// isUsable reports whether the kernel accepts a policy. At least one node of the policy must be allowed. With the flag
// MPOL_F_RELATIVE_NODES, node numbers are positions within the allowed nodes, so they are always usable.
func (MemoryPolicy) isUsable(m lifecycle.MemoryPolicy, allowed []int) bool {
	nodes, err := parseNodes(m.Nodes)
	if err != nil || len(nodes) == 0 || len(allowed) == 0 || slices.Contains(m.Flags, "MPOL_F_RELATIVE_NODES") {
		return err == nil
	}
	return slices.ContainsFunc(nodes, func(n int) bool { return slices.Contains(allowed, n) })
}

// parseNodes reads a kernel list of memory nodes.
func parseNodes(list string) ([]int, error) { return intent.ParseNodes(strings.TrimSpace(list)) }
