package cpumap

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// The marks of CPUs that no pod owns. The marks of owned CPUs are letters.
const (
	markShared    = "s" // in the shared pool only
	markReclaimed = "r" // in the reclaimed pool only
	markBoth      = "·" // in the shared and in the reclaimed pool
	markBalloon   = "b" // in a balloon
	markReserved  = "#" // reserved
	markNone      = "-" // in no pool

	// TooManyOwners is the mark of owned CPUs whose pod has no letter, because other pods use all letters.
	TooManyOwners = "*"
)

// balloonClass is the class of pools that are balloons. Only the containers of a balloon may use its CPUs.
const balloonClass = "balloon"

// letters are the marks of CPUs that pods own: one letter for each pod.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// legendEntry explains one mark in the legend of a map. pod is the pod that owns the CPUs with this mark; empty if no
// pod owns them.
type legendEntry struct{ mark, pod, text string }

// Mark is a character in a drawing, and the CPUs that have this mark.
type Mark struct {
	Mark string // the character
	Pod  string // the pod that owns the CPUs, as namespace/name; empty if no pod owns them
	CPUs []int
}

// Marks returns the online CPUs by mark: one entry for each pod that owns CPUs, for each kind of pool, for reserved
// CPUs, and for CPUs in no pool. Each CPU is in one entry.
func Marks(c api.NodeCPUs) []Mark {
	p := New(c)
	at := map[string]int{}
	var all []Mark
	for _, id := range CPUs(c.Online) {
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

// Map has the mark of each CPU.
type Map struct {
	marks  map[int]string // by CPU id
	pods   map[int]string // by CPU id: the pod that owns the CPU, as namespace/name
	legend []legendEntry
}

// New gives each CPU a mark that shows who may use the CPU. It sets the marks of pools first, then the marks of
// reserved CPUs, and then the letters of pods that own CPUs. A later mark of a CPU replaces an earlier mark.
func New(c api.NodeCPUs) Map {
	p := Map{marks: map[int]string{}, pods: map[int]string{}}
	p.markPools(c)
	if ids := CPUs(c.Reserved); len(ids) > 0 {
		p.setMark(ids, legendEntry{mark: markReserved, text: "reserved"})
	}
	var pods []string
	own, unusable, mark := map[string][]int{}, map[string][]int{}, map[string]string{}
	for _, g := range c.Grants {
		if len(g.Mark) == 1 && strings.Contains(letters, g.Mark) {
			mark[g.Pod] = g.Mark
		}
		unusable[g.Pod] = append(unusable[g.Pod], CPUs(g.Unusable)...)
		if own[g.Pod] == nil {
			pods = append(pods, g.Pod)
		}
		own[g.Pod] = append(own[g.Pod], CPUs(g.CPUs)...)
	}
	slices.Sort(pods)
	assignLetters(pods, mark)
	for _, pod := range pods {
		slices.Sort(own[pod])
		ids := slices.Compact(own[pod])
		for _, id := range ids {
			p.pods[id] = term.Clean(pod)
		}
		text := term.Clean(pod) + " alone: " + cmp.Or(topology.FormatList(ids), "none")
		if slices.Sort(unusable[pod]); len(unusable[pod]) > 0 {
			text += ", missing " + topology.FormatList(slices.Compact(unusable[pod]))
		}
		p.setMark(ids, legendEntry{cmp.Or(mark[pod], TooManyOwners), term.Clean(pod), text})
	}
	return p
}

// assignLetters gives each pod without a letter the first free letter. mark has the letters by pod. When all letters
// are used, the remaining pods get none.
func assignLetters(pods []string, mark map[string]string) {
	used := map[string]bool{}
	for _, m := range mark {
		used[m] = true
	}
	next := 0
	for _, pod := range pods {
		if mark[pod] != "" {
			continue
		}
		for next < len(letters) && used[letters[next:next+1]] {
			next++
		}
		if next == len(letters) {
			return
		}
		mark[pod] = letters[next : next+1]
		used[mark[pod]] = true
	}
}

// Letters stores the letter of each pod that owns CPUs. A pod therefore keeps its letter and colour when other pods
// get or lose CPUs. The zero value is ready for use.
type Letters struct {
	mu sync.Mutex

	byPod map[string]string // the letter of each pod
}

// Mark sets the Mark of each grant to the letter of the grant's pod. grants are all grants of the node. The letter of a
// pod that has no grant any more is free again.
func (l *Letters) Mark(grants []api.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := map[string]string{}
	var pods []string
	for _, g := range grants {
		if m, was := l.byPod[g.Pod]; was {
			known[g.Pod] = m
		}
		pods = append(pods, g.Pod)
	}
	slices.Sort(pods)
	assignLetters(slices.Compact(pods), known)
	l.byPod = known
	for i := range grants {
		grants[i].Mark = known[grants[i].Pod]
	}
}

// markPools gives each online CPU the mark of its pool, or markNone if no pool has the CPU. It adds the pools' marks to
// the legend.
func (p *Map) markPools(c api.NodeCPUs) {
	shared, reclaimed := CPUs(c.Shared), CPUs(c.Reclaimed)
	for _, id := range CPUs(c.Online) {
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
	for _, pool := range c.Pools { // only the containers of a balloon may use its CPUs
		if pool.Class != balloonClass {
			continue
		}
		for _, id := range CPUs(pool.CPUs) {
			p.marks[id] = markBalloon
		}
	}
	seen := map[string]bool{}
	for _, m := range p.marks {
		seen[m] = true
	}
	for _, o := range []legendEntry{
		{mark: markBoth, text: "shared and reclaimed pool"},
		{mark: markShared, text: "shared pool"},
		{mark: markReclaimed, text: "reclaimed pool"},
		{mark: markBalloon, text: "balloons"},
	} {
		if seen[o.mark] {
			p.legend = append(p.legend, o)
		}
	}
}

// setMark gives CPUs the mark of a legend entry, and adds the entry to the legend.
func (p *Map) setMark(ids []int, o legendEntry) {
	for _, id := range ids {
		p.marks[id] = o.mark
	}
	p.legend = append(p.legend, o)
}

// CPUs returns the CPU ids of a kernel list that the agent sent, such as "0-3,8". It returns none for a malformed list.
func CPUs(list string) []int {
	ids, err := topology.ParseList(list)
	if err != nil {
		return nil
	}
	return ids
}
