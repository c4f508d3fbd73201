package conductor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// Status tells what is decided on the node. The agent adds what it knows of
// itself.
func (c *Conductor) Status() api.Node {
	contested := c.contested()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := api.Node{CPUs: c.teller().cpus(), Contested: contested, WithoutCgroup: c.absentLocked(mostAbsent)}
	for _, a := range c.runtimes {
		n.Attachments = append(n.Attachments, api.Attached{Name: a.from.Name(), State: "connected", Runtime: a.runtime.About()})
	}
	for _, id := range c.state.Containers() {
		ctr := c.state.Container(id)
		s := c.teller().container(ctr)
		n.Unapplied += unapplied(s.Values)
		n.Problems += len(c.state.Problems(ctr))
		if _, absent := c.presence.faults[id]; absent {
			n.Problems++
		}
		n.Containers = append(n.Containers, s)
	}
	for _, id := range c.state.Pods() {
		p := c.state.Pod(id)
		n.Unapplied += unapplied(c.teller().values(id, p.Values))
		n.Problems += len(p.Problems())
	}
	return n
}

// mostContested bounds what status lists of files that others write.
const mostContested = 20

func (c *Conductor) contested() []api.Contested {
	list, _, _ := c.keeper.Contests(mostContested)
	var out []api.Contested
	for _, f := range list {
		s := api.Contested{Owner: f.Owner, File: f.File, Writes: f.Writes}
		if f.Left != nil {
			s.Left = f.Left.Error()
		}
		if f.Kept != nil {
			s.Kept = f.Kept.Error()
		}
		out = append(out, s)
	}
	return out
}

func unapplied(values []api.Value) int {
	n := 0
	for _, v := range values {
		if !v.Applied {
			n++
		}
	}
	return n
}

// teller turns a state, and what became of what it decided, into words.
type teller struct {
	state *engine.State
	sent  map[string]*track
	// absent are the cgroups of containers that run without one.
	absent map[string]string
}

func (c *Conductor) teller() teller { return teller{c.state, c.tracks, c.presence.faults} }

func (t teller) cpus() api.NodeCPUs {
	m, s := t.state.Machine, t.state
	out := api.NodeCPUs{
		Online: m.Format(m.Online()), Reserved: m.Format(s.Policy.Pools.Reserved), Exclusive: m.Format(s.Exclusive()),
		Shared: m.Format(s.PoolCPUs(placement.Shared)), Reclaimed: m.Format(s.PoolCPUs(placement.Reclaimed)),
	}
	for _, n := range m.Nodes {
		out.Nodes = append(out.Nodes, numa(m, n))
	}
	for _, p := range s.PoolShares() {
		pool := api.Pool{Name: p.Pool.String(), Class: p.Pool.String(), CPUs: m.Format(p.CPUs), Members: p.Members}
		if p.Pool == placement.Rest {
			pool.Class = intent.None.String()
		}
		if which := p.Which.String(); which != "" {
			pool.Name += " " + which
		}
		out.Pools = append(out.Pools, pool)
	}
	out.Grants = t.grants()
	return out
}

// grants tells who owns which CPUs, and what of them nobody can have now.
func (t teller) grants() []api.Grant {
	m := t.state.Machine
	away := map[placement.Key]placement.Grant{}
	for _, g := range t.state.Kept() {
		away[g.Key] = g
	}
	var out []api.Grant
	for _, g := range t.state.Grants() {
		out = append(out, api.Grant{Pod: g.Pod, Container: g.Key.Container, CPUs: m.Format(g.CPUs), Away: m.Format(away[g.Key].CPUs)})
		delete(away, g.Key)
	}
	for _, g := range t.state.Kept() {
		if _, alone := away[g.Key]; alone {
			out = append(out, api.Grant{Pod: g.Pod, Container: g.Key.Container, Away: m.Format(g.CPUs)})
		}
	}
	return out
}

// numa tells of a NUMA node. A node without CPUs is of no package, -1.
func numa(m *topology.Machine, n topology.Node) api.NUMA {
	out := api.NUMA{ID: n.ID, CPUs: m.Format(n.CPUs), Memory: n.Memory, Package: -1}
	left := n.CPUs
	if !left.Empty() {
		out.Package = m.CPUs[left.First()].Package
	}
	for !left.Empty() {
		core := m.Groups(topology.CoreLevel)[m.GroupOf(topology.CoreLevel, left.First())]
		out.Cores = append(out.Cores, m.Format(core.And(n.CPUs)))
		left = left.Minus(core)
	}
	return out
}

// Explain tells of one pod's containers, or one of them, what was decided, why
// and what became of it. A pod without containers is told of by itself.
func (c *Conductor) Explain(namespace, pod, container string) ([]api.Container, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []api.Container
	known := false
	for _, id := range c.state.Pods() {
		p := c.state.Pod(id)
		if p.Pod.Namespace != namespace || p.Pod.Name != pod {
			continue
		}
		ids := c.state.ContainersOf(id)
		for _, cid := range ids {
			ctr := c.state.Container(cid)
			if container == "" || ctr.Name == container {
				known = true
				s := c.teller().container(ctr)
				s.Facts = factsOf(c.state, p, ctr)
				out = append(out, s)
			}
		}
		if len(ids) == 0 && container == "" {
			known = true
			out = append(out, c.teller().podOnly(p))
		}
	}
	return out, known
}

func (t teller) podOnly(p *engine.Pod) api.Container {
	s := api.Container{
		Pod: p.FullName(), State: "no container yet", Class: p.Intent.Class.V.String(), ClassFrom: p.Intent.Class.Key,
		QoS: p.Intent.QoS.String(), PodValues: t.values(p.Pod.ID, p.Values),
	}
	s.Problems = p.Problems()
	return s
}

func (t teller) container(ctr *engine.Container) api.Container {
	p := t.state.Pod(ctr.PodID)
	s := t.podOnly(p)
	s.Name, s.ID, s.State = ctr.Name, ctr.ID, ctr.Life.String()
	if dir, absent := t.absent[ctr.ID]; absent { // the first, which no bound cuts off
		s.Problems = slices.Insert(s.Problems, 0, absentProblem(dir))
	}
	s.Problems = lifecycle.Bound(slices.Concat(s.Problems, t.state.Problems(ctr)), lifecycle.MaxProblems)
	if !ctr.Alive() {
		s.Seat = "none"
		return s
	}
	s.Seat, s.SeatWhy = ctr.Seat.Pool.String(), ctr.SeatWhy
	s.CPUs = t.state.Machine.Format(t.state.CPUs(ctr))
	s.Values = t.values(ctr.ID, t.state.Values(ctr))
	return s
}

// values joins what is decided with what became of it.
func (t teller) values(owner string, values []lifecycle.Value) []api.Value {
	var out []api.Value
	for _, v := range values {
		name := v.Field.String()
		if v.Key != "" {
			name += " " + v.Key
		}
		s := api.Value{Field: name, Value: v.String(), Why: v.Why, Channel: "none", Note: "not delivered yet"}
		if d, ok := t.sent[owner].of(v); ok && d.value == v.String() {
			s.Channel, s.Applied, s.Note = d.channel, d.applied, d.told()
			if dir, absent := t.absent[owner]; absent && !d.applied && d.missing == api.NotYet {
				s.Note = withoutCgroup(dir)
			}
		}
		out = append(out, s)
	}
	return out
}
