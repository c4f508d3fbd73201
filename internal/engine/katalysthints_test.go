package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/topology"
)

// hintRows are the rows of the table of CPU hints in Katalyst's unit tests (katalyst-core, cpu dynamicpolicy), by the
// names of our reference.
const hintRows = "H1 H2 H3 H4 H8 H11 H14 H15 H16 H17 H18 H19 H20 H23 H24 H27"

// TestKatalystHints: where Katalyst prefers several sets of NUMA nodes, the agent takes one of these. Where the agent
// differs, the row says how; docs/katalyst.md has the reasons. A row that is missing fails.
func TestKatalystHints(t *testing.T) {
	const (
		whole  = `"full_pcpus_pairing":"true"`
		evenly = `"distribute_evenly_across_numa":"true"`
		number = `"katalyst.kubewharf.io/numa_number":`
		ids    = `"katalyst.kubewharf.io/numa_ids":`
	)
	any := []string{"0", "1", "2", "3"}
	type row struct {
		name    string
		machine string // "" for T16
		free    bool   // nothing is reserved
		before  *asking
		pod     asking
		nodes   []string // one of these sets of NUMA nodes
		problem string
		differs string // how the agent differs from Katalyst; "" if it does not
	}
	dedicated := func(milli int64, memory, cpu string) asking {
		if cpu != "" {
			cpu = "{" + cpu + "}"
		}
		return asking{name: "p", level: "dedicated", milli: milli, memory: memory, cpu: cpu}
	}
	used := asking{name: "used", level: "LSR", milli: 2000, more: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"8,9"}`}}
	rows := []row{
		{name: "H1 reclaimed", pod: asking{name: "p", level: "reclaimed", parent: "/besteffort"}, nodes: []string{"0-3"}},
		{name: "H2 exclusive", pod: dedicated(2000, numaWhole, ""), nodes: any},
		{name: "H3 not exclusive", pod: dedicated(2000, numaBound, ""), nodes: any},
		{name: "H4 nearly all", machine: "2s x 6n x 16c x 2t", pod: dedicated(380000, numaWhole, ""), nodes: []string{"0-11"}},
		{name: "H8 reclaimed and bound", pod: asking{name: "p", level: "reclaimed", parent: "/besteffort", memory: numaBound}, nodes: []string{"2", "3"},
			differs: "the node with the most reclaimed CPUs, not the most measured headroom"},
		{name: "H11 by socket", pod: dedicated(7000, numaWhole, `"align_by_socket":"true"`), nodes: []string{"2-3"}},
		{name: "H14 whole cores", free: true, before: &used, pod: dedicated(2000, numaBound, whole), nodes: []string{"1", "2", "3"}},
		{name: "H14 whole cores, odd", free: true, before: &used, pod: dedicated(3000, numaBound, whole), nodes: []string{"0-1"}, problem: "3 CPUs are not whole cores", differs: "refused instead of rounded down"},
		{name: "H15 whole cores and exclusive", pod: dedicated(2000, numaWhole, whole), nodes: any, problem: "full_pcpus_pairing", differs: "exclusive, and the other key is dropped and reported"},
		{name: "H16 evenly over 4", pod: dedicated(12000, numaBound, evenly+","+number+`"4"`), nodes: []string{"0-3"}},
		{name: "H17 evenly without a number", pod: dedicated(12000, numaBound, evenly), nodes: []string{"0-3"}, problem: "distribute_evenly_across_numa", differs: "as few nodes as hold it, and the key is dropped and reported"},
		{name: "H18 evenly in whole cores", pod: dedicated(8000, numaBound, evenly+","+whole+","+number+`"2"`), nodes: []string{"2-3"}},
		{name: "H19 evenly and exclusive", pod: dedicated(2000, numaWhole, evenly+","+number+`"2"`), nodes: []string{"0-1", "2-3"}, problem: "distribute_evenly_across_numa", differs: "exclusive, and the other key is dropped and reported"},
		{name: "H20 whole cores, empty", free: true, pod: dedicated(2000, numaBound, whole), nodes: any},
		{name: "H20 whole cores, empty, odd", free: true, pod: dedicated(3000, numaBound, whole), nodes: []string{"0-1"}, problem: "3 CPUs are not whole cores", differs: "refused instead of rounded down"},
		{name: "H23 two nodes", pod: dedicated(2000, numaWhole, number+`"2"`), nodes: []string{"0-1", "2-3"}},
		{name: "H24 node 1", pod: dedicated(2000, numaBound, ids+`"1"`), nodes: []string{"1"}},
		{name: "H27 a node that does not exist", pod: dedicated(2000, numaBound, ids+`"0,2,4"`), nodes: []string{"0-1"}, problem: "lacks 4", differs: "reported; the pod runs in the shared pool"},
		{name: "H27 a list", pod: dedicated(6000, numaBound, ids+`"0,2-3"`), nodes: []string{"0,2-3"}},
		{name: "H27 no list", pod: dedicated(2000, numaBound, ids+`"invalid"`), nodes: any, problem: "is not a number", differs: "reported; the key is ignored"},
		{name: "H27 none", pod: dedicated(2000, numaBound, ""), nodes: any},
	}
	played := map[string]bool{}
	for _, r := range rows {
		id, _, _ := strings.Cut(r.name, " ")
		played[id] = true
		t.Run(r.name, func(t *testing.T) {
			text := r.machine
			if text == "" {
				text = "2s x 2n x 2c x 2t, 8GiB/node"
			}
			m, p := t16(t, text)
			if r.free {
				p.Pools.Reserved, p.Pools.Shared, p.Pools.Reclaimed = topology.Set{}, m.Online(), m.Online()
			}
			s := NewState(m, p)
			if r.before != nil {
				r.before.run(t, s)
			}
			ctr := r.pod.run(t, s)
			var on []int
			for i := range m.Nodes {
				if cpus := s.CPUs(ctr); cpus.Len() > 0 && !cpus.And(m.Nodes[i].CPUs).Empty() {
					on = append(on, m.Nodes[i].ID)
				}
			}
			if got := topology.FormatList(on); !slices.Contains(r.nodes, got) {
				t.Errorf("NUMA nodes %s (CPUs %s, %s), want one of %q", got, m.Format(s.CPUs(ctr)), ctr.Assignment.Why, r.nodes)
			}
			problems := append(slices.Clone(ctr.ProblemSummary.Problems), s.Pod(ctr.PodID).Intent.Problems...)
			if all := fmt.Sprint(problems); len(problems) > 0 != (r.problem != "") || !strings.Contains(all, r.problem) {
				t.Errorf("problems %v, want %q", problems, r.problem)
			}
			if r.problem != "" && r.differs == "" {
				t.Error("Katalyst does not report a problem here: say how the agent differs")
			}
		})
	}
	for _, row := range strings.Fields(hintRows) {
		if !played[row] {
			t.Errorf("row %s is not played", row)
		}
	}
}
