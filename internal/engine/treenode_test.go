package engine

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
	"github.com/trimtab/trimtab/internal/topology"
)

// n4c16 is the machine of most of nri-plugins' end-to-end tests.
const n4c16 = "2s x 2n x 2c x 2t"

// treeNode is a node with the policy topology-aware.
type treeNode struct {
	t    *testing.T
	s    *State
	pods map[string]*lifecycle.Pod
	n    int
	// pod changes a pod before it is created; nil for none.
	pod func(name string, p *lifecycle.Pod)
}

func newTreeNode(t *testing.T, o topologyaware.Options) *treeNode {
	t.Helper()
	m, p := topologyAwarePolicy(t, n4c16, o)
	return treeNodeOf(t, m, p)
}

func treeNodeOf(t *testing.T, m *topology.Machine, p Policy) *treeNode {
	t.Helper()
	p.Dialects = append(p.Dialects, "nri-plugins")
	p.Serving = &intent.ServingSettings{Policy: "topology-aware", Hooks: []string{"cpuset"}}
	return &treeNode{t: t, s: NewState(m, p), pods: map[string]*lifecycle.Pod{}}
}

// treeAsk is the request and limit of a container, in milli-CPUs.
type treeAsk struct{ milli, limit int64 }

// whole is a container of a Guaranteed pod.
func whole(n int64) treeAsk { return treeAsk{n * 1000, n * 1000} }

// run creates a pod with containers c0, c1 and so on, and returns them.
func (b *treeNode) run(name string, annotations map[string]string, asks ...treeAsk) (all []*Container) {
	b.t.Helper()
	b.n++
	pod, first := treePod(b.n, "default", asks[0].milli, asks[0].limit)
	pod.Name, pod.Annotations, b.pods[name] = name, annotations, pod
	if b.pod != nil {
		b.pod(name, pod)
	}
	pod.Resources.CPU = lifecycle.CPU{Period: first.Resources.CPU.Period}
	for _, a := range asks {
		pod.Resources.CPU.Shares = lifecycle.Some(pod.Resources.CPU.Shares.V + intent.SharesFromMilli(a.milli))
		pod.Resources.CPU.Quota = lifecycle.Some(pod.Resources.CPU.Quota.V + a.limit*100)
	}
	for i, a := range asks {
		_, c := treePod(b.n, "default", a.milli, a.limit)
		c.ID, c.Name, c.PodID = fmt.Sprintf("%s-%d", c.ID, i), fmt.Sprintf("c%d", i), pod.ID
		b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
		all = append(all, b.s.Container(c.ID))
	}
	return all
}

func (b *treeNode) remove(name string) {
	b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: b.pods[name]}, Facts{}))
}

// cpus returns the CPUs of a container.
func (b *treeNode) cpus(c *Container) topology.Set { return b.s.CPUs(b.s.Container(c.ID)) }

// nodes returns the NUMA nodes of a container's CPUs.
func (b *treeNode) nodes(c *Container) (set topology.Set) {
	for cpu := range b.cpus(c).All() {
		set.Add(b.s.Machine.CPUs[cpu].Node)
	}
	return set
}

// want reports a row that does not hold.
func (b *treeNode) want(row string, holds bool, all ...*Container) {
	b.t.Helper()
	if holds {
		return
	}
	for _, c := range all {
		b.t.Errorf("%s: %s has CPUs %s: %s %v", row, c.Name, b.s.Machine.Format(b.cpus(c)), c.Assignment.Why, c.ProblemSummary.Problems)
	}
}
