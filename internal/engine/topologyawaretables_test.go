package engine

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
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
}

func newTreeNode(t *testing.T, o topologyaware.Options) *treeNode {
	t.Helper()
	m, p := topologyAwarePolicy(t, n4c16, o)
	return treeNodeOf(t, m, p)
}

func treeNodeOf(t *testing.T, m *topology.Machine, p Policy) *treeNode {
	t.Helper()
	p.Dialects = append(p.Dialects, "nri-plugins")
	p.Serving = &intent.Serving{Policy: "topology-aware", Hooks: []string{"cpuset"}}
	return &treeNode{t: t, s: NewState(m, p), pods: map[string]*lifecycle.Pod{}}
}

// ask is the request and limit of a container, in milli-CPUs.
type treeAsk struct{ milli, limit int64 }

// whole is a container of a Guaranteed pod.
func whole(n int64) treeAsk { return treeAsk{n * 1000, n * 1000} }

// run creates a pod with containers c0, c1 and so on, and returns them.
func (b *treeNode) run(name string, annotations map[string]string, asks ...treeAsk) (all []*Container) {
	b.t.Helper()
	b.n++
	pod, first := treePod(b.n, "default", asks[0].milli, asks[0].limit)
	pod.Name, pod.Annotations, b.pods[name] = name, annotations, pod
	pod.Resources.CPU = lifecycle.CPU{Period: first.Resources.CPU.Period}
	for _, a := range asks {
		pod.Resources.CPU.Shares = lifecycle.Some(pod.Resources.CPU.Shares.V + intent.MilliShares(a.milli))
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

// TestTopologyAwareTables: rows of nri-plugins' end-to-end tests (topology-aware/n4c16) that the
// scenario does not have.
func TestTopologyAwareTables(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]func(*testing.T){
		"hidden threads": treeHiddenThreads, "init containers": treeInit, "colocation": treeColocation, "shared": treeShared,
		"idle parts": treeIdle, "affinity": treeAffinity, "machines": treeMachines,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows(t)
		})
	}
}

func treeHiddenThreads(t *testing.T) {
	t.Helper()
	b := newTreeNode(t, topologyaware.Options{})
	all := b.run("p", map[string]string{intent.NRIHideThreads + "/container.c2": "true"}, whole(3), whole(3), whole(3), whole(3))
	var taken topology.Set
	for i, c := range all {
		n := 3
		if i == 2 {
			n = 2
		}
		b.want("A2", b.cpus(c).Len() == n && b.nodes(c).Len() == 1 && taken.And(b.nodes(c)).Empty(), c)
		taken = taken.Union(b.nodes(c))
	}
	b.want("A2", b.s.Machine.Spread(topology.CoreLevel, b.cpus(all[2])).Len() == 4, all[2])
}

func treeInit(t *testing.T) {
	t.Helper()
	b := newTreeNode(t, topologyaware.Options{})
	pod, _ := treePod(1, "default", 10000, 10000)
	spec := &lifecycle.PodSpec{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, QoS: "Guaranteed"}
	f := Facts{Specs: map[string]*lifecycle.PodSpec{pod.UID: spec}}
	for i := range 7 {
		kind := lifecycle.Init
		if i > 4 {
			kind = lifecycle.App
		}
		spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: fmt.Sprintf("c%d", i), Kind: kind})
	}
	var apps []*Container
	for i := range 7 {
		_, c := treePod(1, "default", 5000, 5000)
		c.ID, c.Name, c.PodID = fmt.Sprintf("c001-%d", i), fmt.Sprintf("c%d", i), pod.ID
		for _, kind := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.StopContainer} {
			if kind != lifecycle.StopContainer || i < 5 {
				b.s.Commit(Decide(b.s, &lifecycle.Event{Kind: kind, Pod: pod, Container: c}, f))
			}
		}
		if i > 4 {
			apps = append(apps, b.s.Container(c.ID))
		}
	}
	both := b.s.Machine.Spread(topology.PackageLevel, b.cpus(apps[0])).And(b.cpus(apps[1]))
	b.want("A4", b.cpus(apps[0]).Len() == 5 && b.cpus(apps[1]).Len() == 5 && both.Empty(), apps...)
}

func treeColocation(t *testing.T) {
	t.Helper()
	small := treeAsk{100, 200}
	b := newTreeNode(t, topologyaware.Options{ColocatePods: true})
	for _, c := range b.run("p", nil, small, small, small, small)[1:] {
		b.want("A5", b.cpus(c) == b.cpus(b.s.Container("c001-0")), c)
	}
	b = newTreeNode(t, topologyaware.Options{ColocateNamespaces: true})
	all := append(append(b.run("p1", nil, small), b.run("p2", nil, small)...), b.run("p3", nil, small, small)...)
	for _, c := range all {
		b.want("A6", b.cpus(c) == b.cpus(all[0]), c)
	}
}

func treeShared(t *testing.T) {
	t.Helper()
	b := newTreeNode(t, topologyaware.Options{})
	yes, no := map[string]string{intent.NRIPreferShared: "true"}, map[string]string{intent.NRIPreferShared: "false"}
	c := b.run("p", yes, treeAsk{2000, 2000})[0]
	b.want("A21", c.Assignment.Pool == placement.TreePool && b.s.Exclusive().Empty(), c)
	b = newTreeNode(t, topologyaware.Options{PreferSharedCPUs: true})
	for i, n := range []int64{1, 2} {
		shares, owns := b.run(fmt.Sprint("shares", i), nil, whole(n))[0], b.run(fmt.Sprint("owns", i), no, whole(n))[0]
		b.want("A22", int64(b.cpus(shares).Len()) > n && int64(b.cpus(owns).Len()) == n, shares, owns)
	}
}

func treeIdle(t *testing.T) {
	t.Helper()
	b := newTreeNode(t, topologyaware.Options{})
	all := b.run("be", nil, treeAsk{}, treeAsk{})
	owner := b.run("g", nil, whole(4))[0]
	apart := b.cpus(all[0]).And(b.cpus(all[1])).Empty() && b.cpus(owner).And(b.cpus(all[0]).Union(b.cpus(all[1]))).Empty()
	b.want("A26", apart && b.cpus(owner).Len() == 4 && b.nodes(owner).Len() == 1, append(all, owner)...)
}

func treeAffinity(t *testing.T) {
	t.Helper()
	b := newTreeNode(t, topologyaware.Options{})
	all := b.run("p", nil, whole(1), whole(1), whole(1), whole(1))
	for i, node := range []int{1, 2, 3, 0} {
		b.want("A27", b.nodes(all[i]) == topology.SetOf(node), all[i])
	}
	b = newTreeNode(t, topologyaware.Options{})
	all = b.run("p", map[string]string{intent.NRIAffinity: "c0: [c1]\nc2: [c3]"}, whole(1), whole(1), whole(1), whole(1))
	b.want("A28", b.nodes(all[0]) == b.nodes(all[1]) && b.nodes(all[2]) == b.nodes(all[3]) && b.nodes(all[0]) != b.nodes(all[2]), all...)
	b = newTreeNode(t, topologyaware.Options{})
	all = b.run("p", map[string]string{intent.NRIAntiAffinity: `{"c4": ["c0","c1","c2"], "c5": ["c0","c2","c3"]}`}, whole(1), whole(1), whole(1), whole(1), whole(1), whole(1))
	for _, i := range []int{0, 1, 2} {
		b.want("A29", b.nodes(all[4]).And(b.nodes(all[i])).Empty(), all[4], all[i])
	}
	for _, i := range []int{0, 2, 3} {
		b.want("A29", b.nodes(all[5]).And(b.nodes(all[i])).Empty(), all[5], all[i])
	}
}

// treeMachines: a machine without NUMA nodes, and one with few CPUs of high ids.
func treeMachines(t *testing.T) {
	t.Helper()
	m, p := topologyAwarePolicy(t, "2s x 4c x 2t", topologyaware.Options{})
	b := treeNodeOf(t, m, p)
	all := b.run("p", nil, whole(5), whole(5))
	apart := m.Spread(topology.PackageLevel, b.cpus(all[0])).And(b.cpus(all[1])).Empty()
	b.want("A30", b.cpus(all[0]).Len() == 5 && b.cpus(all[1]).Len() == 5 && apart, all...)

	var cpus []topology.CPU
	for i, id := range []int{0, 1, 2, 511, 1535, 4095} {
		pkg := max(0, i-3)
		cpus = append(cpus, topology.CPU{ID: id, Core: id, Package: pkg, Node: pkg, L3: pkg, Die: pkg})
	}
	m, err := topology.New(cpus, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, p = topologyAwarePolicy(t, n4c16, topologyaware.Options{})
	p.Pools = placement.Pools{Online: m.Online(), Reserved: m.OnlineOf("1535"), Shared: m.OnlineOf("0-2,511,4095"), Reclaimed: m.OnlineOf("0-2")}
	p.Placement = topologyaware.New(m, topologyaware.Options{UnlimitedBurstable: topologyaware.Package})
	b = treeNodeOf(t, m, p)
	owner := b.run("g", nil, whole(5))[0]
	b.want("A31", b.cpus(owner).Len() == 5 && b.cpus(owner).Contains(m.OnlineOf("4095")), owner)
	b.remove("g")
	large, small := b.run("bu1", nil, treeAsk{3100, 4000})[0], b.run("bu2", nil, treeAsk{900, 1000})[0]
	b.want("A31", b.cpus(large) == m.OnlineOf("0-2,511") && b.cpus(small) == m.OnlineOf("4095"), large, small)
	b.remove("bu1")
	b.remove("bu2")
	owner = b.run("g2", nil, whole(5))[0]
	b.want("A31", b.cpus(owner).Len() == 5, owner)
}
