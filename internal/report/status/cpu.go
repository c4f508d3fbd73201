package status

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// RenderCPU shows one CPU: the container that owns the CPU, the CPU's position and pools, and the containers that may
// run on the CPU.
func RenderCPU(w io.Writer, n api.Node, id int, o Options) error {
	has := func(list string) bool { return slices.Contains(cpumap.CPUs(list), id) }
	if !has(n.CPUs.Online) {
		return fmt.Errorf("CPU %d is not online on this node; the online CPUs are %s", id, n.CPUs.Online)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "CPU %d: %s\n", id, userOfCPU(n.CPUs, has))
	head := newTableWriter(&b)
	for _, m := range n.CPUs.Nodes {
		if has(m.CPUs) {
			fmt.Fprintf(head, "  place\t%s\n", positionOfCPU(m, has))
		}
	}
	var in []string
	for _, p := range n.CPUs.Pools {
		if has(p.CPUs) {
			in = append(in, term.Clean(p.Name))
		}
	}
	fmt.Fprintf(head, "  pools\t%s\n", orDash(strings.Join(in, ", ")))
	flush(head)
	n.Containers = slices.DeleteFunc(slices.Clone(n.Containers), func(c api.Container) bool { return !has(c.CPUs) })
	if len(n.Containers) == 0 {
		fmt.Fprintf(&b, "\nno container may run on this CPU\n")
	}
	writeContainerTable(&b, n, o)
	return writeTrimmed(w, &b)
}

// userOfCPU returns a text that says who may use a CPU. has reports whether a list of CPUs contains the CPU.
func userOfCPU(c api.NodeCPUs, has func(list string) bool) string {
	for _, g := range c.Grants {
		switch {
		case has(g.CPUs):
			return "owned by " + ownerName(g.Pod, g.Container) + ": containers of other pods may not run there"
		case has(g.Unusable):
			return "owned by " + ownerName(g.Pod, g.Container) + ", which cannot use it now"
		}
	}
	if has(c.Reserved) {
		return "reserved for the system (pools.reserved): no pod owns it"
	}
	return "no pod owns it; the containers of its pools share it"
}

// positionOfCPU returns a text with the NUMA node, the socket, the core and the L3 cache of a CPU. m is the NUMA node.
// has reports whether a list of CPUs contains the CPU.
func positionOfCPU(m api.NUMA, has func(list string) bool) string {
	s := fmt.Sprintf("NUMA node %d, socket %d", m.ID, m.Package)
	for _, core := range m.Cores {
		if has(core) && len(cpumap.CPUs(core)) > 1 {
			s += ", one core with " + core
		}
	}
	for _, cache := range m.Caches {
		if has(cache) {
			s += ", L3 cache with " + cache
		}
	}
	return s
}
