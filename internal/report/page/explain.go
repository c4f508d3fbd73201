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

// maxRows is the largest number of containers that a table of an explanation lists.
const maxRows = 200

// explanation is the answer to a question: a verdict, and tables with the details.
type explanation struct {
	Title   string   `json:"title"`
	Verdict verdict  `json:"verdict"`
	Tables  []table  `json:"tables,omitempty"`
	Remarks []string `json:"about,omitempty"` // further remarks, one sentence each
}

// table is a table of an explanation. Goto has an entry for each row: the question that a click on the row asks, such
// as "pool=shared", or "" if the row cannot be clicked.
type table struct {
	Caption string     `json:"caption"`
	Head    []string   `json:"head"` // the headings of the columns
	Rows    [][]string `json:"rows"`
	Goto    []string   `json:"goto,omitempty"`
}

// question names the object on which the user clicked.
type question struct {
	kind string // "cpu", "pool", "numa", "pod" or "container"
	name string // the name or number of the object
}

// explain answers a question about a CPU, a pool, a NUMA node or a pod. It returns false if the node has no such
// object. explainContainer answers questions about containers.
func explain(q question, n api.Node) (explanation, bool) {
	explainObject := map[string]func(nameOrNumber string, n api.Node) (explanation, bool){
		"cpu": explainCPU, "pool": explainPool, "numa": explainNUMA, "pod": explainPod,
	}[q.kind]
	if explainObject == nil {
		return explanation{}, false
	}
	return explainObject(q.name, n)
}

// explainCPU explains who may use a CPU, where the CPU is, and which containers may run on it.
func explainCPU(number string, n api.Node) (explanation, bool) {
	id, err := strconv.Atoi(number)
	if err != nil || !slices.Contains(cpumap.CPUs(n.CPUs.Online), id) {
		return explanation{}, false
	}
	e := explanation{Title: fmt.Sprintf("CPU %d", id)}
	who := userOf(n.CPUs, id)
	e.Verdict.Good = true
	switch who.Kind {
	case "own":
		e.Verdict.Text = who.Pod + " owns CPU " + number + ": no other container may run on it."
	case "reserved":
		e.Verdict.Text = "It is reserved for the system (pools.reserved): no pod owns it."
	case "none":
		e.Verdict.Text = "It is in no pool: only containers whose CPUs Trimtab does not set may run on it."
	default:
		e.Verdict.Text = "Containers of the " + who.Name + " share it."
	}
	e.Remarks = positionOf(n.CPUs, id)
	users := filter(n.Containers, func(c api.Container) bool { return slices.Contains(cpumap.CPUs(c.CPUs), id) })
	for _, c := range users {
		if c.CPUGroup == "exclusive" && c.CPUGroupWhy != "" && term.Clean(c.Pod) == who.Pod {
			e.Verdict.Reasons = append(e.Verdict.Reasons, term.Clean(c.Name+": "+c.CPUGroupWhy))
		}
		if who.Kind == "own" && term.Clean(c.Pod) != who.Pod && c.CPUs != "" {
			e.Verdict.Good = false
			e.Verdict.Reasons = append(e.Verdict.Reasons, term.Clean(c.Pod+"/"+c.Name+" may also run on this CPU, but should not."))
		}
	}
	e.Tables = append(e.Tables, containerTable("Containers that may run on CPU "+number, users))
	return e, true
}

// positionOf describes where a CPU is: its NUMA node, socket, L3 cache and core.
func positionOf(c api.NodeCPUs, id int) []string {
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
				at = append(at, fmt.Sprintf("CPU %d (%s) is a thread of the same core.", other, userOf(c, other).Name))
			}
		}
		return at
	}
	return nil
}

// userOf returns the user of a CPU: the pod that owns the CPU, or the kind of pool that has the CPU.
func userOf(c api.NodeCPUs, id int) cpuUser {
	for _, u := range users(c) {
		if slices.Contains(cpumap.CPUs(u.CPUs), id) {
			return u
		}
	}
	return cpuUser{Kind: "none", Name: "in no pool"}
}

// filter returns the elements of a list that meet a condition.
func filter[T any](list []T, meets func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(element T) bool { return !meets(element) })
}

// explainPool explains the CPUs and containers of a pool.
func explainPool(name string, n api.Node) (explanation, bool) {
	i := slices.IndexFunc(n.CPUs.Pools, func(p api.Pool) bool { return term.Clean(p.Name) == name })
	if i < 0 {
		return explanation{}, false
	}
	p := n.CPUs.Pools[i]
	e := explanation{Title: "Pool " + name, Verdict: verdict{Good: true}}
	e.Verdict.Text = fmt.Sprintf("%s may use %s: %s.", term.Count(p.Members, "container"), term.Count(len(cpumap.CPUs(p.CPUs)), "CPU"), cmp.Or(p.CPUs, "none"))
	if p.CPUs == "" && p.Members > 0 {
		e.Verdict.Good = false
	}
	e.Remarks = []string{"CPUs that a pod owns are in no pool; a CPU may be in several pools."}
	if class, _, _ := strings.Cut(p.Name, " "); p.Class != "" {
		e.Remarks = append(e.Remarks, "Its containers are of class "+term.Clean(p.Class)+".")
		e.Tables = append(e.Tables, containerTable("Containers in pools of this class", filter(n.Containers, func(c api.Container) bool { return c.CPUGroup == class })))
	}
	return e, true
}

// explainNUMA explains who may use the CPUs of a NUMA node.
func explainNUMA(number string, n api.Node) (explanation, bool) {
	i := slices.IndexFunc(n.CPUs.Nodes, func(m api.NUMA) bool { return strconv.Itoa(m.ID) == number })
	if i < 0 {
		return explanation{}, false
	}
	m := n.CPUs.Nodes[i]
	memory := numaOf(m).Memory
	e := explanation{Title: "NUMA node " + number, Verdict: verdict{Good: true}}
	if m.CPUs == "" {
		e.Verdict.Text = "It has only memory (" + cmp.Or(memory, "size unknown") + ") and no CPUs."
		return e, true
	}
	here := cpumap.CPUs(m.CPUs)
	t := table{Caption: "Who may use its CPUs", Head: []string{"", "Who", "CPUs here", "How many"}}
	owned := 0
	for _, u := range users(n.CPUs) {
		mine := filter(cpumap.CPUs(u.CPUs), func(id int) bool { return slices.Contains(here, id) })
		if len(mine) == 0 {
			continue
		}
		if u.Kind == "own" {
			owned += len(mine)
		}
		t.Rows = append(t.Rows, []string{u.Mark, u.Name, formatCPUs(mine), strconv.Itoa(len(mine))})
		t.Goto = append(t.Goto, questionFor(u))
	}
	e.Verdict.Text = fmt.Sprintf("Pods own %d of its %s.", owned, term.Count(len(here), "CPU"))
	e.Remarks = []string{fmt.Sprintf("It has CPUs %s (%s, %s) in socket %d.", m.CPUs, term.Count(len(m.Cores), "core"), term.Count(max(1, len(m.Caches)), "L3 cache"), m.Package)}
	if memory != "" {
		e.Remarks = append(e.Remarks, "Memory: "+memory+".")
	}
	e.Tables = append(e.Tables, t)
	return e, true
}

// explainPod explains a pod: the CPUs that it owns, and its containers.
func explainPod(name string, n api.Node) (explanation, bool) {
	e := explanation{Title: "Pod " + name, Verdict: verdict{Good: true}}
	var own, unusable []int
	for _, g := range n.CPUs.Grants {
		if term.Clean(g.Pod) == name {
			own, unusable = append(own, cpumap.CPUs(g.CPUs)...), append(unusable, cpumap.CPUs(g.Unusable)...)
		}
	}
	mine := filter(n.Containers, func(c api.Container) bool { return term.Clean(c.Pod) == name })
	if len(own)+len(unusable)+len(mine) == 0 {
		return e, false
	}
	e.Verdict.Text = "It owns CPUs " + formatCPUs(own) + "; no other container may run on them."
	if len(own) == 0 {
		e.Verdict.Text = "It owns no CPUs; its containers share the CPUs of pools."
	}
	if len(unusable) > 0 {
		e.Verdict.Good = false
		e.Verdict.Reasons = append(e.Verdict.Reasons, "It also owns CPUs "+formatCPUs(unusable)+", but cannot use them now: they are offline, or missing in the pod's cgroup.")
	}
	e.Tables = append(e.Tables, containerTable("Its containers", mine))
	return e, true
}

// questionFor returns the query that opens the explanation of a row in the table of CPU users, such as pod=shop/web; ""
// if the page cannot explain this row.
func questionFor(u cpuUser) string {
	switch u.Kind {
	case "own":
		return "pod=" + u.Pod
	case "shared", "reclaimed":
		return "pool=" + u.Kind
	}
	return ""
}

// containerTable returns a table of containers, with at most maxRows of them.
func containerTable(caption string, list []api.Container) table {
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
