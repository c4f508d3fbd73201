package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// The marks of CPUs that no pod owns alone; a pod's are letters. They are those
// of the embedded runtime's picture.
const (
	markShared    = "s"
	markReclaimed = "r"
	markBoth      = "·"
	markReserved  = "#"
	markNone      = "-"
	markTooMany   = "*"
)

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// perLine is how many CPUs one line of the picture shows, in groups.
const (
	perLine  = 64
	perGroup = 8
)

// owner is one explained mark of the picture.
type owner struct{ mark, text string }

// Mark is what stands for some CPUs in a picture, and whose they are.
type Mark struct {
	Mark string
	Pod  string // that owns them alone, as namespace/name; empty for a pool
	CPUs []int
}

// Marks gives every CPU the mark that RenderStatus draws it with. An owner has one entry, so has everything else; no CPU
// is in two.
func Marks(c api.NodeCPUs) []Mark {
	p := draw(c)
	at := map[string]int{}
	var all []Mark
	for _, id := range cpus(c.Online) {
		key := p.marks[id] + "\x00" + p.pods[id]
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, Mark{Mark: p.marks[id], Pod: p.pods[id]})
		}
		all[i].CPUs = append(all[i].CPUs, id)
	}
	return all
}

// picture says which mark each CPU has.
type picture struct {
	marks map[int]string
	pods  map[int]string // who owns a CPU alone
	used  []owner
}

// draw gives each CPU the mark of who may use it. What is more particular is
// painted last: pools, reserved, owners.
func draw(c api.NodeCPUs) picture {
	p := picture{marks: map[int]string{}, pods: map[int]string{}}
	p.pools(c)
	if ids := cpus(c.Reserved); len(ids) > 0 {
		p.paint(ids, owner{markReserved, "reserved"})
	}
	var pods []string
	own, away := map[string][]int{}, map[string][]int{}
	for _, g := range c.Grants {
		away[g.Pod] = append(away[g.Pod], cpus(g.Away)...)
		if own[g.Pod] == nil {
			pods = append(pods, g.Pod)
		}
		own[g.Pod] = append(own[g.Pod], cpus(g.CPUs)...)
	}
	slices.Sort(pods)
	for i, pod := range pods {
		mark := markTooMany
		if i < len(letters) {
			mark = letters[i : i+1]
		}
		slices.Sort(own[pod])
		ids := slices.Compact(own[pod])
		for _, id := range ids {
			p.pods[id] = Clean(pod)
		}
		text := Clean(pod) + " alone: " + cmp.Or(topology.FormatList(ids), "none")
		if slices.Sort(away[pod]); len(away[pod]) > 0 {
			text += ", missing " + topology.FormatList(slices.Compact(away[pod]))
		}
		p.paint(ids, owner{mark, text})
	}
	return p
}

func (p *picture) pools(c api.NodeCPUs) {
	shared, reclaimed := cpus(c.Shared), cpus(c.Reclaimed)
	for _, id := range cpus(c.Online) {
		p.marks[id] = markNone
	}
	for _, id := range shared {
		p.marks[id] = markShared
	}
	for _, id := range reclaimed {
		if p.marks[id] == markShared {
			p.marks[id] = markBoth
		} else {
			p.marks[id] = markReclaimed
		}
	}
	seen := map[string]bool{}
	for _, m := range p.marks {
		seen[m] = true
	}
	for _, o := range []owner{
		{markBoth, "shared and reclaimed pool"},
		{markShared, "shared pool"},
		{markReclaimed, "reclaimed pool"},
	} {
		if seen[o.mark] {
			p.used = append(p.used, o)
		}
	}
}

func (p *picture) paint(ids []int, o owner) {
	for _, id := range ids {
		p.marks[id] = o.mark
	}
	p.used = append(p.used, o)
}

// cpus reads a list the agent sent; what it cannot be read as is not drawn.
func cpus(list string) []int {
	ids, err := topology.ParseList(list)
	if err != nil {
		return nil
	}
	return ids
}

// write draws one or more lines per NUMA node, and the legend.
func (p picture) write(w io.Writer, c api.NodeCPUs) {
	widest := 0
	for _, n := range c.Nodes {
		widest = max(widest, len(n.CPUs))
	}
	for _, n := range c.Nodes {
		label := fmt.Sprintf("  node %-2d  %*s  ", n.ID, widest, n.CPUs)
		for line := range slices.Chunk(cpus(n.CPUs), perLine) {
			fmt.Fprintln(w, label+p.line(line))
			label = strings.Repeat(" ", len(label))
		}
	}
	for _, o := range p.used {
		fmt.Fprintf(w, "  %s %s\n", o.mark, o.text)
	}
}

func (p picture) line(ids []int) string {
	var groups []string
	for group := range slices.Chunk(ids, perGroup) {
		var b strings.Builder
		for _, id := range group {
			b.WriteString(p.marks[id])
		}
		groups = append(groups, b.String())
	}
	return strings.Join(groups, " ")
}
