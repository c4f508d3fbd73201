package page

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/topology"
)

// state is everything that the page shows, except how busy the CPUs are.
type state struct {
	Node    string   `json:"node"`
	Version string   `json:"version"`
	Verdict verdict  `json:"verdict"`
	Facts   []string `json:"facts"` // short phrases about the node, such as "3 containers"
	Map     cpuMap   `json:"map"`
	Rows    []row    `json:"rows"` // the containers
}

// change is the difference between a state and the previous state.
type change struct {
	Verdict     verdict  `json:"verdict"`
	Facts       []string `json:"facts"`          // all phrases of the new state
	Map         *cpuMap  `json:"map,omitempty"`  // nil if it has not changed
	Rows        []row    `json:"rows,omitempty"` // the rows that are new or have changed
	RemovedRows []string `json:"gone,omitempty"` // ids of rows
}

// cpuMap has the machine's NUMA nodes, and who may use their CPUs.
type cpuMap struct {
	Nodes []numa    `json:"nodes,omitempty"` // in a change: nil if they have not changed
	Users []cpuUser `json:"users"`
	Pools []pool    `json:"pools"`
}

// numa is a NUMA node.
type numa struct {
	ID      int    `json:"id"`
	Package int    `json:"package"`          // -1 for a node that has only memory
	CPUs    string `json:"cpus"`             // a kernel list
	Memory  string `json:"memory,omitempty"` // the size, such as "64.0 GiB"; "" if it is unknown
	// Caches has a list for each L3 cache: its cores, each as a list of CPUs such as "0,8".
	Caches [][]string `json:"caches"`
}

// cpuUser is one entry of the map's legend: a pod that owns CPUs, or a kind of pool with the CPUs of all its pools.
// There is also an entry for the reserved CPUs, and an entry for the CPUs in no pool. Each CPU belongs to exactly one
// cpuUser.
type cpuUser struct {
	Mark string `json:"mark"` // one or two characters that stand for the user on the map
	Kind string `json:"kind"` // own, shared, reclaimed, both (shared and reclaimed), balloon, reserved, none
	Name string `json:"name"`
	Pod  string `json:"pod,omitempty"` // the pod that owns the CPUs; "" for a pool
	CPUs string `json:"cpus"`
}

// pool is a pool of CPUs that containers share.
type pool struct {
	Name    string `json:"name"`
	CPUs    string `json:"cpus"`    // a kernel list
	Members int    `json:"members"` // the number of containers in the pool
}

// row is a container in the table.
type row struct {
	ID       string `json:"id"` // the name of the container in a question: NAMESPACE/POD/CONTAINER/ID
	Pod      string `json:"pod"`
	Name     string `json:"name"`
	State    string `json:"state"`
	Class    string `json:"class"` // system, dedicated, shared, reclaimed or none
	QoS      string `json:"qos"`
	CPUGroup string `json:"seat"`
	CPUs     string `json:"cpus"`
	Values   int    `json:"values"`  // the number of decided values of the container and its pod
	Missing  int    `json:"missing"` // values that are not in force
	Problems int    `json:"problems"`
}

// poolKinds has the Kind and the Name of the cpuUsers that are not pods, by their mark on the map (package cpumap).
var poolKinds = map[string]struct{ kind, name string }{
	"s": {"shared", "shared pool"}, "r": {"reclaimed", "reclaimed pool"}, "·": {"both", "shared and reclaimed pool"},
	"b": {"balloon", "balloons"}, "#": {"reserved", "reserved"}, "-": {"none", "in no pool"},
}

// stateOf returns what the page shows of a node. The parameter name is the node's name.
func stateOf(name string, n api.Node) state {
	return state{Node: term.Clean(name), Version: term.Clean(n.Version), Verdict: nodeVerdict(n), Facts: factsOf(n), Map: mapOf(n.CPUs), Rows: rowsOf(n)}
}

// mapOf returns the map of a node's CPUs.
func mapOf(c api.NodeCPUs) cpuMap {
	m := cpuMap{Users: users(c)}
	for _, n := range c.Nodes {
		m.Nodes = append(m.Nodes, numaOf(n))
	}
	for _, p := range c.Pools {
		m.Pools = append(m.Pools, pool{Name: term.Clean(p.Name), CPUs: p.CPUs, Members: p.Members})
	}
	return m
}

// numaOf returns a NUMA node for the page. If the agent knows no cores, each CPU is a core. If it knows no caches, one
// cache has all CPUs of the node.
func numaOf(n api.NUMA) numa {
	out := numa{ID: n.ID, Package: n.Package, CPUs: n.CPUs}
	if n.Memory > 0 {
		out.Memory = fmt.Sprintf("%.1f GiB", float64(n.Memory)/(1<<30))
	}
	cores := n.Cores
	if len(cores) == 0 {
		for _, id := range cpumap.CPUs(n.CPUs) {
			cores = append(cores, fmt.Sprint(id))
		}
	}
	caches := n.Caches
	if len(caches) == 0 {
		caches = []string{n.CPUs}
	}
	for _, cache := range caches {
		in := cpumap.CPUs(cache)
		mine := filter(cores, func(core string) bool {
			ids := cpumap.CPUs(core)
			return len(ids) > 0 && slices.Contains(in, ids[0])
		})
		if len(mine) > 0 {
			out.Caches = append(out.Caches, mine)
		}
	}
	return out
}

// users returns who may use the CPUs: first the pods that own CPUs, sorted by name, then the kinds of pools. The marks
// on the map come from package cpumap, which gives each owner a letter. If no letter is left for an owner, the owner
// gets two letters.
func users(c api.NodeCPUs) []cpuUser {
	var owners, others []cpuUser
	for _, m := range cpumap.Marks(c) {
		u := cpuUser{Mark: m.Mark, CPUs: topology.FormatList(m.CPUs)}
		if m.Pod != "" {
			u.Kind, u.Name, u.Pod = "own", m.Pod, m.Pod
			owners = append(owners, u)
			continue
		}
		u.Kind, u.Name = poolKinds[m.Mark].kind, poolKinds[m.Mark].name
		others = append(others, u)
	}
	slices.SortFunc(owners, func(a, b cpuUser) int { return cmp.Compare(a.Pod, b.Pod) })
	const letters = 26
	next := 0
	for i := range owners {
		if owners[i].Mark == cpumap.TooManyOwners {
			owners[i].Mark = string(rune('A'+next/letters%letters)) + string(rune('a'+next%letters))
			next++
		}
	}
	return append(owners, others...)
}

// rowsOf returns a row for each container of a node.
func rowsOf(n api.Node) []row {
	rows := make([]row, 0, len(n.Containers))
	for _, c := range n.Containers {
		rows = append(rows, row{
			ID: idOf(c), Pod: term.Clean(c.Pod), Name: term.Clean(c.Name), State: term.Clean(c.State), Class: term.Clean(c.Class),
			QoS: term.Clean(c.QoS), CPUGroup: term.Clean(c.CPUGroup), CPUs: c.CPUs, Values: len(c.Values) + len(c.PodValues), Problems: len(c.Problems),
			Missing: api.NotApplied(c.Values) + api.NotApplied(c.PodValues),
		})
	}
	return rows
}

// idOf returns the name of a container in a question: NAMESPACE/POD/CONTAINER/ID. It includes the runtime's id, because
// two containers have the same name while one container replaces the other.
func idOf(c api.Container) string { return c.Pod + "/" + c.Name + "/" + c.ID }
