package churn

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// kind is a kind of pod, by its requests.
type kind struct {
	name   string
	weight int // weight in the draw
	// class of Koordinator, or of Katalyst with its enhancements
	label, level, cpu, memory string
	// milli is the range of the main container's request in milli-CPUs. Whole CPUs are also its limit.
	milli     [2]int
	owns      bool // owns as many CPUs as it requests
	all       bool // owns a whole NUMA node
	lent      bool // reclaimed containers may use its CPUs
	bound     bool // bound to one NUMA node
	reclaimed bool
}

const (
	toNode  = `{"numa_binding":"true"}`
	allNode = `{"numa_binding":"true","numa_exclusive":"true"}`
)

// kinds has every class and most enhancements.
var kinds = []kind{
	{name: "own", weight: 4, level: "dedicated", milli: [2]int{1000, 6000}, owns: true},
	{name: "lsr", weight: 3, label: "LSR", milli: [2]int{1000, 4000}, owns: true, lent: true},
	{name: "lse", weight: 2, label: "LSE", milli: [2]int{1000, 4000}, owns: true},
	{name: "whole", weight: 2, milli: [2]int{1000, 3000}, owns: true},
	{name: "bind", weight: 3, level: "dedicated", memory: toNode, cpu: `{"katalyst.kubewharf.io/numa_number":"1"}`, milli: [2]int{1000, 8000}, owns: true, bound: true},
	{name: "cores", weight: 1, level: "dedicated", memory: toNode, cpu: `{"full_pcpus_pairing":"true","katalyst.kubewharf.io/numa_number":"1"}`, milli: [2]int{2000, 2000}, owns: true, bound: true},
	{name: "even", weight: 1, level: "dedicated", memory: toNode, cpu: `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_number":"2"}`, milli: [2]int{4000, 4000}, owns: true},
	{name: "node", weight: 1, level: "dedicated", memory: allNode, milli: [2]int{2000, 4000}, owns: true, all: true},
	{name: "share", weight: 20, level: "shared", milli: [2]int{20, 400}},
	{name: "ls", weight: 10, label: "LS", milli: [2]int{20, 300}},
	{name: "a", weight: 5, level: "shared", cpu: `{"cpuset_pool":"a"}`, milli: [2]int{50, 500}},
	{name: "b", weight: 5, level: "shared", cpu: `{"cpuset_pool":"b"}`, milli: [2]int{50, 500}},
	{name: "snb", weight: 4, level: "shared", memory: toNode, milli: [2]int{50, 500}},
	{name: "be", weight: 15, label: "BE", reclaimed: true},
	{name: "left", weight: 10, level: "reclaimed", reclaimed: true},
	{name: "rnb", weight: 3, level: "reclaimed", memory: toNode, reclaimed: true},
	{name: "sys", weight: 2, level: "system", milli: [2]int{10, 100}},
	{name: "res", weight: 2, level: "system", cpu: `{"cpuset_pool":"reserve"}`, milli: [2]int{10, 100}},
	{name: "quiet", weight: 8, milli: [2]int{20, 900}},
	{name: "none", weight: 4},
}

// draw returns a random kind by weight.
func (n *node) draw() kind {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	at := n.rng.IntN(sum)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	panic("unreachable")
}

// make returns a pod of a kind with one to three containers.
func (n *node) make(k kind) *pod {
	n.made++
	p := &pod{kind: k, Pod: scenario.Pod{
		Namespace: "churn", Name: fmt.Sprintf("%s-%d", k.name, n.made), QoS: "Burstable", Labels: map[string]string{}, Annotations: map[string]string{},
	}}
	for key, text := range map[string]string{
		"katalyst.kubewharf.io/qos_level": strings.TrimPrefix(k.level+"_cores", "_cores"), "katalyst.kubewharf.io/cpu_enhancement": k.cpu,
		"katalyst.kubewharf.io/memory_enhancement": k.memory,
	} {
		if text != "" {
			p.Annotations[key] = text
		}
	}
	if k.label != "" {
		p.Labels["koordinator.sh/qosClass"] = k.label
	}
	milli := k.milli[0] + n.rng.IntN(k.milli[1]-k.milli[0]+1)
	if k.owns {
		milli -= milli % 1000
	}
	p.cpus = milli / 1000
	main := scenario.Container{Name: "main", Resources: scenario.Resources{Shares: new(max(uint64(milli)*1024/1000, 2))}}
	if k.owns {
		p.QoS = "Guaranteed"
		main.Resources.Quota, main.Resources.Period = new(int64(milli)*100), new(uint64(100_000))
	}
	if milli == 0 {
		p.QoS = "BestEffort"
	}
	p.ctrs = append(p.ctrs, main)
	if k.name == "whole" {
		return p // each of its containers would own CPUs
	}
	for i := range n.rng.IntN(3) {
		c := scenario.Container{Name: fmt.Sprintf("side-%d", i), Resources: scenario.Resources{Shares: new(uint64(2))}}
		if k.owns {
			c.Resources.Shares = new(uint64(10)) // without a request, the limit is the request
			c.Resources.Quota, c.Resources.Period = new(int64(1000)), new(uint64(100_000))
		}
		p.ctrs = append(p.ctrs, c)
	}
	// Sidecars of an owner request 10 milli-CPUs each, which pays for no further CPU.
	return p
}
