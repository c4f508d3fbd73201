package hook

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// MemoryPolicy gives the processes of containers the NUMA memory policy their pod
// asks for. Keys and values: NRI 0.12, plugin device-injector.
type MemoryPolicy struct {
	// Nodes are the node's memory nodes; empty if they are not known.
	Nodes []int
}

// MemoryPolicyOptions tunes the hook of NUMA memory policies.
type MemoryPolicyOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// AllOn is the hook with all that can be switched on.
func (MemoryPolicyOptions) AllOn() Hook { return MemoryPolicy{} }

// Make makes the hook for a node.
func (MemoryPolicyOptions) Make(n Node, _ *Options) (Hook, error) {
	return MemoryPolicy{Nodes: n.Host().MemoryNodes}, nil
}

// Info describes the hook.
func (MemoryPolicy) Info() Info {
	return Info{
		Name:     "memoryPolicy",
		About:    "the NUMA memory policy that a container's processes start with (set_mempolicy), in every mode",
		Stages:   []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:    []string{intent.NRIMemPolicy},
		Sets:     []lifecycle.Field{lifecycle.MemPolicy},
		Compose:  "the only hook that sets it",
		TestedOn: "a model of the runtime only: no OCI runtime that applies it was available",
		Differs: []string{
			"if the container may use none of the nodes, the agent reports that, and the creation does not fail",
			"modes and flags that the kernel refuses together are reported, and the creation does not fail",
			"OCI runtimes apply it since runc 1.4; older ones ignore it, and the agent cannot see that",
			"a running container keeps the policy that it was created with",
		},
	}
}

// Propose sets a container's policy.
func (h MemoryPolicy) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.MemPolicy, "memoryPolicy")
	if !ok {
		return
	}
	if allowed := h.allowed(in); !h.usable(asked.V, allowed) {
		out.decline(asked.Key, asked.V.Text(), "memoryPolicy: the container may use none of these nodes")
		return
	}
	out.text(in, lifecycle.MemPolicy, "", asked.V.Text(), why)
}

// allowed returns the memory nodes of the container; empty if they are not known.
func (h MemoryPolicy) allowed(in *Input) []int {
	list := in.Mems
	if in.Pristine != nil {
		list = cmp.Or(list, in.Pristine.CPU.Mems)
	}
	if nodes, err := parseNodes(list); err == nil && len(nodes) > 0 {
		return nodes
	}
	return h.Nodes
}

// usable reports whether the kernel accepts a policy: at least one of its nodes must be allowed.
// Relative nodes are numbered within the allowed nodes.
func (MemoryPolicy) usable(m lifecycle.MemoryPolicy, allowed []int) bool {
	nodes, err := parseNodes(m.Nodes)
	if err != nil || len(nodes) == 0 || len(allowed) == 0 || slices.Contains(m.Flags, "MPOL_F_RELATIVE_NODES") {
		return err == nil
	}
	return slices.ContainsFunc(nodes, func(n int) bool { return slices.Contains(allowed, n) })
}

// parseNodes reads a kernel list of memory nodes.
func parseNodes(list string) ([]int, error) { return intent.Nodes(strings.TrimSpace(list)) }
