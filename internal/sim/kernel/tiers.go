package kernel

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates memory.reclaim of Linux 6.16 to 6.18 on nodes with faster and slower memory.

// NodeMemory is the memory of a cgroup's tasks on a memory node, in bytes.
type NodeMemory struct{ Anonymous, PageCache int64 }

// Tiers are the settings of the simulated kernel for nodes with faster and slower memory.
type Tiers struct {
	// Demotion is the value of /sys/kernel/mm/numa/demotion_enabled.
	Demotion bool `json:"demotion,omitempty"`
	// Swap means that the node has swap.
	Swap bool `json:"swap,omitempty"`
}

// TierNode is a memory node of a machine with memory tiers.
type TierNode struct {
	ID       int
	Tier     int         // the number of the node's memory tier; a higher number means slower memory
	Size     int64       // in bytes
	Distance map[int]int // the distances to other nodes, by node id
}

// tiers is the state of a kernel with memory tiers. Without nodes, memory.reclaim does nothing.
type tiers struct {
	Tiers
	nodes                      []TierNode
	droppedBytes, swappedBytes int64 // the bytes of page cache that memory.reclaim dropped, and the bytes that it moved to swap
}

// SetTiers sets the memory nodes of the simulated machine, each with its memory tier. It also sets whether the kernel
// moves memory to slower nodes, and whether the machine has swap.
func (f *Cgroups) SetTiers(t Tiers, nodes []TierNode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tiers.Tiers, f.tiers.nodes = t, nodes
}

// SetNodeMemory sets the memory of a cgroup's tasks on a memory node.
func (f *Cgroups) SetNodeMemory(dir string, node int, m NodeMemory) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.findGroup(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	if g.memoryOnNodes == nil {
		g.memoryOnNodes = map[int]NodeMemory{}
	}
	g.memoryOnNodes[node] = m
	return nil
}

// NodeMemory returns the memory of a cgroup's tasks by memory node.
func (f *Cgroups) NodeMemory(dir string) map[int]NodeMemory {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.findGroup(dir)
	if !ok {
		return nil
	}
	return maps.Clone(g.memoryOnNodes)
}

// LostBytes returns how many bytes memory.reclaim dropped from the page cache, or swapped.
func (f *Cgroups) LostBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tiers.droppedBytes + f.tiers.swappedBytes
}

// nodeMemory returns the memory of a cgroup and of all cgroups below it on a memory node.
func (g *group) nodeMemory(node int) NodeMemory {
	m := g.memoryOnNodes[node]
	for _, c := range g.children {
		below := c.nodeMemory(node)
		m.Anonymous += below.Anonymous
		m.PageCache += below.PageCache
	}
	return m
}

// showNodeMemory shows memory.numa_stat.
func showNodeMemory(f *Cgroups, g *group) string {
	var lines []string
	row := func(name string, of func(NodeMemory) int64) {
		line := name
		for _, n := range f.tiers.nodes {
			line += fmt.Sprintf(" N%d=%d", n.ID, of(g.nodeMemory(n.ID)))
		}
		lines = append(lines, line)
	}
	none := func(NodeMemory) int64 { return 0 }
	anonymous := func(m NodeMemory) int64 { return m.Anonymous }
	cache := func(m NodeMemory) int64 { return m.PageCache }
	row("anon", anonymous)
	row("file", cache)
	row("inactive_anon", anonymous)
	row("active_anon", none)
	row("inactive_file", cache)
	row("active_file", none)
	row("unevictable", none)
	return strings.Join(lines, "\n")
}

// setReclaim reclaims memory of a cgroup. The kernel moves anonymous memory to a slower node, or to swap. On a node
// from which it can move no memory, it drops page cache, even if the write requested only anonymous memory
// (swappiness=max). It tries to reclaim the whole amount from each node.
func setReclaim(f *Cgroups, g *group, text string) error {
	first, option, _ := strings.Cut(trimBlanks(text), " ")
	want, err := kernelBytes(first, "")
	if err != nil {
		return err
	}
	anonymousOnly := option == "swappiness=max"
	switch {
	case option == "", anonymousOnly && f.kernelSince(16), strings.HasPrefix(option, "swappiness=") && !anonymousOnly && f.kernelSince(10):
	default:
		return syscall.EINVAL
	}
	if len(f.tiers.nodes) == 0 {
		return nil
	}
	if g.memoryOnNodes == nil {
		g.memoryOnNodes = map[int]NodeMemory{}
	}
	done := int64(0)
	for _, n := range f.tiers.nodes {
		m := g.memoryOnNodes[n.ID]
		to, demotes := f.demotionTarget(g, n)
		swaps := f.tiers.Swap && g.swap != 0
		switch {
		case demotes:
			moved := min(want-done, m.Anonymous, to.Size-f.root.nodeMemory(to.ID).Anonymous)
			slow := g.memoryOnNodes[to.ID]
			slow.Anonymous += moved
			g.memoryOnNodes[to.ID] = slow
			m.Anonymous, done = m.Anonymous-moved, done+moved
			if !anonymousOnly {
				slow.PageCache += m.PageCache
				g.memoryOnNodes[to.ID], m.PageCache = slow, 0
			}
		case swaps:
			out := min(want, m.Anonymous)
			m.Anonymous, f.tiers.swappedBytes, done = m.Anonymous-out, f.tiers.swappedBytes+out, done+out
		}
		if !demotes && (!swaps || !anonymousOnly) {
			out := min(want, m.PageCache)
			m.PageCache, f.tiers.droppedBytes, done = m.PageCache-out, f.tiers.droppedBytes+out, done+out
		}
		g.memoryOnNodes[n.ID] = m
	}
	if done < want {
		return syscall.EAGAIN
	}
	return nil
}

// demotionTarget returns the node to which the kernel moves a cgroup's pages from the node in the parameter from. It is
// the nearest node of the next slower tier. ok is false if there is no slower tier, if the cgroup may not use the
// nearest node, or if the kernel does not demote pages.
func (f *Cgroups) demotionTarget(g *group, from TierNode) (to TierNode, ok bool) {
	if !f.tiers.Demotion {
		return to, false
	}
	for _, n := range f.tiers.nodes {
		switch {
		case n.Tier <= from.Tier:
		case !ok, n.Tier < to.Tier, n.Tier == to.Tier && from.Distance[n.ID] < from.Distance[to.ID]:
			to, ok = n, true
		}
	}
	mems, err := cgroup.ParseIDs(strconv.Itoa(to.ID))
	return to, ok && err == nil && f.effectiveMems(g).Contains(mems)
}

// TierFiles has the files below sys/ and proc/ in which the kernel lists memory tiers, swap devices and free memory.
type TierFiles struct{ f *Cgroups }

// TierFiles returns the files in which the simulated kernel lists its memory tiers.
func (f *Cgroups) TierFiles() TierFiles { return TierFiles{f} }

// textsByPath returns the texts of all files, by path.
func (t TierFiles) textsByPath() map[string]string {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	s := &t.f.tiers
	all := map[string]string{"proc/swaps": "Filename Type Size Used Priority\n"}
	if s.Swap {
		all["proc/swaps"] += "/dev/vda partition 1048576 0 -2\n"
	}
	if len(s.nodes) == 0 {
		return all
	}
	all["sys/kernel/mm/numa/demotion_enabled"] = strconv.FormatBool(s.Demotion) + "\n"
	of := map[int][]string{}
	for _, n := range s.nodes {
		of[n.Tier] = append(of[n.Tier], strconv.Itoa(n.ID))
		used := t.f.root.nodeMemory(n.ID)
		free := max(n.Size-used.Anonymous-used.PageCache, 0)
		all[fmt.Sprintf("sys/devices/system/node/node%d/meminfo", n.ID)] =
			fmt.Sprintf("Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        %[3]d kB\n", n.ID, n.Size>>10, free>>10)
	}
	for tier, nodes := range of {
		all[fmt.Sprintf("sys/devices/virtual/memory_tiering/memory_tier%d/nodelist", tier)] = strings.Join(nodes, ",") + "\n"
	}
	all["sys/devices/virtual/memory_tiering/uevent"] = ""
	return all
}

// Read returns the text of a file.
func (t TierFiles) Read(file string) (string, error) {
	text, found := t.textsByPath()[file]
	if !found {
		return "", pathError("open", file, fs.ErrNotExist)
	}
	return text, nil
}

// List returns the names of the files and directories directly below dir.
func (t TierFiles) List(dir string) (names []string, err error) {
	for file := range t.textsByPath() {
		if rest, below := strings.CutPrefix(file, dir+"/"); below {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	if names == nil {
		return nil, pathError("open", dir, fs.ErrNotExist)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
