package hook

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Hugepages limits the huge pages of containers, by page size.
type Hugepages struct {
	// Sizes are the node's huge page sizes, such as "2MB".
	Sizes []string
	// Controller reports whether the kernel has the cgroup controller of huge pages. Without the controller, a runtime
	// fails to create a container with such a limit.
	Controller lifecycle.Finding
}

// HugepagesOptions tunes the huge page hook.
type HugepagesOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
}

// Make makes the hook for a node.
func (HugepagesOptions) Make(n Node, _ *Options) (Hook, error) {
	return Hugepages{Sizes: n.Host().HugePages, Controller: n.Probe("hugetlb")}, nil
}

// Info describes the hook.
func (Hugepages) Info() Info {
	return Info{
		Name:           "hugepages",
		About:          "limits of huge pages, by page size",
		Stages:         lifetimeEvents(),
		Reads:          []string{intent.TrimtabHugepages},
		Sets:           []lifecycle.Field{lifecycle.Hugepages},
		KernelFeatures: []string{"hugetlb"},
		Compose:        "no other hook sets this field",
		TestedOn:       "Linux 6.1 with containerd 2.4, cgroup v1 and v2, in a virtual machine",
		Differs: []string{
			"by default a pod can only lower the limits that Kubernetes set; the agent refuses and reports higher limits",
			"the runtime derives reservations (hugetlb.SIZE.rsvd) from the limit when it creates the container; for a running container only the limit changes",
			"containerd applies the limits of Kubernetes only if its option disable_hugetlb_controller is false; the default is true. The agent applies the limits of the annotation whatever the value of this option",
			"a size that the node does not have is reported and not sent to the runtime, which would fail the container",
		},
	}
}

// Propose sets a container's limits of huge pages.
func (h Hugepages) Propose(in *Input, out *Output) {
	if in.Container == "" || !in.Intent.Hugepages.IsSet() {
		return
	}
	ask := in.Intent.Hugepages
	limits := ask.V.Limits[in.Container]
	for _, size := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[size]
		p := lifecycle.Problem{Key: ask.Key, Value: fmt.Sprintf("%s %d", size, limit), Refused: true}
		limited := slices.IndexFunc(in.Pristine.Hugepages, func(l lifecycle.HugepageLimit) bool { return l.Size == size })
		switch {
		case h.Controller.Support == lifecycle.NotSupported:
			p.Reason = "hugepages: " + h.Controller.Why
		case !slices.Contains(h.Sizes, size):
			p.Reason = "hugepages: this node has no huge pages of " + size
		case ask.V.CappedBy != "" && limited >= 0 && uint64(limit) > in.Pristine.Hugepages[limited].Limit:
			p.Rule = ask.V.CappedBy
			p.Reason = fmt.Sprintf("hugepages: the limit is above the %d bytes that Kubernetes gave the container (authorization: %s)",
				in.Pristine.Hugepages[limited].Limit, ask.V.CappedBy)
		default:
			out.Values = append(out.Values, lifecycle.Value{
				Field: lifecycle.Hugepages, Key: size, Int: limit,
				Why: lifecycle.Reason{Hook: "hugepages", Source: ask.Key, Text: "requested for the container"},
			})
			continue
		}
		out.addProblem(p)
	}
}
