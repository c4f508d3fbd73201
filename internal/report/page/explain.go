package page

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
)

// maxRows limits a table of an explanation.
const maxRows = 200

// explanation answers a click: the verdict first, then the reasons.
type explanation struct {
	Title   string   `json:"title"`
	Verdict verdict  `json:"verdict"`
	Tables  []table  `json:"tables,omitempty"`
	About   []string `json:"about,omitempty"` // further remarks, one sentence each
}

// table is a part of an explanation. Goto has for each row the question about its object, or "".
type table struct {
	Caption string     `json:"caption"`
	Head    []string   `json:"head"`
	Rows    [][]string `json:"rows"`
	Goto    []string   `json:"goto,omitempty"`
}

// question is what the user of the page clicked on: "cpu", "pool", "numa" or "container", and which.
type question struct{ what, which string }

// explain answers a question from a status. It returns false if the node has no such object. explainContainer
// answers questions about containers.
func explain(q question, n api.Node) (explanation, bool) {
	switch q.what {
	case "cpu":
		return explainCPU(q.which, n)
	case "pool":
		return explainPool(q.which, n)
	case "numa":
		return explainNUMA(q.which, n)
	case "pod":
		return explainOwner(q.which, n)
	}
	return explanation{}, false
}

func explainCPU(which string, n api.Node) (explanation, bool) {
	id, err := strconv.Atoi(which)
	if err != nil || !slices.Contains(cpumap.CPUs(n.CPUs.Online), id) {
		return explanation{}, false
	}
	e := explanation{Title: fmt.Sprintf("CPU %d", id)}
	who := userOf(n.CPUs, id)
	switch who.Kind {
	case "own":
		e.Verdict = verdict{Good: true, Text: who.Pod + " owns CPU " + which + ": no other container may run on it."}
	case "reserved":
		e.Verdict = verdict{Good: true, Text: "Reserved for the system: no pod owns it (pools.reserved)."}
	case "none":
		e.Verdict = verdict{Good: true, Text: "In no pool: only containers that Trimtab leaves as they are may run here."}
	default:
		e.Verdict = verdict{Good: true, Text: "Containers of the " + who.Name + " share it."}
	}
	e.About = place(n.CPUs, id)
	users := runningOn(n, id)
	for _, c := range users {
		if c.CPUGroup == "exclusive" && c.SeatWhy != "" && term.Clean(c.Pod) == who.Pod {
			e.Verdict.Reasons = append(e.Verdict.Reasons, term.Clean(c.Name+": "+c.SeatWhy))
		}
		if who.Kind == "own" && term.Clean(c.Pod) != who.Pod && c.CPUs != "" {
			e.Verdict.Good = false
			e.Verdict.Reasons = append(e.Verdict.Reasons, term.Clean(c.Pod+"/"+c.Name+" may also run here, and should not."))
		}
	}
	e.Tables = append(e.Tables, containers("Containers that may run on CPU "+which, users))
	return e, true
}

// place describes the position of a CPU.
func place(c api.NodeCPUs, id int) []string {
	for _, n := range c.Nodes {
		if !slices.Contains(cpumap.CPUs(n.CPUs), id) {
			continue
		}
		at := []string{fmt.Sprintf("It is in NUMA node %d of socket %d.", n.ID, n.Package)}
		for _, cache := range n.Caches {
			if slices.Contains(cpumap.CPUs(cache), id) {
				at = append(at, "It shares an L3 cache with CPUs "+cache+".")
			}
		}
		for _, core := range n.Cores {
			others := slices.DeleteFunc(cpumap.CPUs(core), func(other int) bool { return other == id })
			if len(others) == len(cpumap.CPUs(core)) {
				continue
			}
			for _, other := range others {
				at = append(at, fmt.Sprintf("CPU %d is a thread of the same core: %s.", other, userOf(c, other).Name))
			}
		}
		return at
	}
	return nil
}

func userOf(c api.NodeCPUs, id int) user {
	for _, u := range users(c) {
		if slices.Contains(cpumap.CPUs(u.CPUs), id) {
			return u
		}
	}
	return user{Kind: "none", Name: "in no pool"}
}

func runningOn(n api.Node, id int) (on []api.Container) {
	for _, c := range n.Containers {
		if slices.Contains(cpumap.CPUs(c.CPUs), id) {
			on = append(on, c)
		}
	}
	return on
}

func explainPool(which string, n api.Node) (explanation, bool) {
	i := slices.IndexFunc(n.CPUs.Pools, func(p api.Pool) bool { return term.Clean(p.Name) == which })
	if i < 0 {
		return explanation{}, false
	}
	p := n.CPUs.Pools[i]
	e := explanation{Title: "Pool " + which, Verdict: verdict{Good: true}}
	e.Verdict.Text = fmt.Sprintf("%s may use %s: %s.", term.Count(p.Members, "container"), term.Count(len(cpumap.CPUs(p.CPUs)), "CPU"), cmp.Or(p.CPUs, "none"))
	if p.CPUs == "" && p.Members > 0 {
		e.Verdict.Good = false
	}
	e.About = []string{"CPUs that a pod owns are in no pool; a CPU may be in several pools."}
	if class, _, _ := strings.Cut(p.Name, " "); p.Class != "" {
		e.About = append(e.About, "Its containers are of class "+term.Clean(p.Class)+".")
		e.Tables = append(e.Tables, containers("Containers in pools of this class", containersOf(n, class)))
	}
	return e, true
}

func containersOf(n api.Node, seat string) (in []api.Container) {
	for _, c := range n.Containers {
		if c.CPUGroup == seat {
			in = append(in, c)
		}
	}
	return in
}

func explainNUMA(which string, n api.Node) (explanation, bool) {
	i := slices.IndexFunc(n.CPUs.Nodes, func(m api.NUMA) bool { return strconv.Itoa(m.ID) == which })
	if i < 0 {
		return explanation{}, false
	}
	m := n.CPUs.Nodes[i]
	memory := numaOf(m).Memory
	e := explanation{Title: "NUMA node " + which, Verdict: verdict{Good: true}}
	if m.CPUs == "" {
		e.Verdict.Text = "Only memory: " + cmp.Or(memory, "size unknown") + ", no CPUs."
		return e, true
	}
	here := cpumap.CPUs(m.CPUs)
	t := table{Caption: "Who may use its CPUs", Head: []string{"", "Who", "CPUs here", "How many"}}
	owned := 0
	for _, u := range users(n.CPUs) {
		mine := slices.DeleteFunc(cpumap.CPUs(u.CPUs), func(id int) bool { return !slices.Contains(here, id) })
		if len(mine) == 0 {
			continue
		}
		if u.Kind == "own" {
			owned += len(mine)
		}
		t.Rows = append(t.Rows, []string{u.Mark, u.Name, formatted(mine), strconv.Itoa(len(mine))})
		t.Goto = append(t.Goto, gotoUser(u))
	}
	e.Verdict.Text = fmt.Sprintf("Pods own %d of its %s.", owned, term.Count(len(here), "CPU"))
	e.About = []string{fmt.Sprintf("CPUs %s in socket %d, %s, %s.", m.CPUs, m.Package, term.Count(len(m.Cores), "core"), term.Count(max(1, len(m.Caches)), "L3 cache"))}
	if memory != "" {
		e.About = append(e.About, "Memory: "+memory+".")
	}
	e.Tables = append(e.Tables, t)
	return e, true
}

// explainOwner lists the CPUs and containers of an owner.
func explainOwner(which string, n api.Node) (explanation, bool) {
	e := explanation{Title: "Pod " + which, Verdict: verdict{Good: true}}
	var own, away []int
	for _, g := range n.CPUs.Grants {
		if term.Clean(g.Pod) == which {
			own, away = append(own, cpumap.CPUs(g.CPUs)...), append(away, cpumap.CPUs(g.Away)...)
		}
	}
	mine := slices.DeleteFunc(slices.Clone(n.Containers), func(c api.Container) bool { return term.Clean(c.Pod) != which })
	if len(own)+len(away)+len(mine) == 0 {
		return e, false
	}
	e.Verdict.Text = "It owns CPUs " + formatted(own) + "; no other container may run on them."
	if len(own) == 0 {
		e.Verdict.Text = "It owns no CPUs; its containers share pools."
	}
	if len(away) > 0 {
		e.Verdict.Good = false
		e.Verdict.Reasons = append(e.Verdict.Reasons, "CPUs "+formatted(away)+" belong to it, and it cannot use them now: they are offline, or missing in its pod's cgroup.")
	}
	e.Tables = append(e.Tables, containers("Its containers", mine))
	return e, true
}

// gotoUser returns the question about a user of CPUs, or "" if there is nothing to tell.
func gotoUser(u user) string {
	switch u.Kind {
	case "own":
		return "pod=" + u.Pod
	case "shared", "reclaimed":
		return "pool=" + u.Kind
	}
	return ""
}

func containers(caption string, list []api.Container) table {
	t := table{Caption: fmt.Sprintf("%s: %d", caption, len(list)), Head: []string{"Container", "Class", "CPUs"}}
	for _, c := range list[:min(len(list), maxRows)] {
		t.Rows = append(t.Rows, []string{term.Clean(c.Pod + "/" + c.Name), term.Clean(c.Class), c.CPUs})
		t.Goto = append(t.Goto, "container="+idOf(c))
	}
	if more := len(list) - maxRows; more > 0 {
		t.Rows, t.Goto = append(t.Rows, []string{fmt.Sprintf("and %d more", more), "", ""}), append(t.Goto, "")
	}
	return t
}
