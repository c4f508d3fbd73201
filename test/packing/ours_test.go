package packing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/topology"
)

// ours is policy pools, called by the engine as on a node, with the same ledger, layout, memory nodes and resizes.
// placement.reclaim is leftover, so that a pool loses only CPUs that it needs.
type ours struct {
	tb     testing.TB
	state  *engine.State
	shared map[int]event
}

func newOurs(tb testing.TB, m *topology.Machine) allocator {
	tb.Helper()
	all := m.Online()
	sizing := pools.NewSizing(m)
	return &ours{tb: tb, shared: map[int]event{}, state: engine.NewState(m, engine.Policy{
		PlacementOn: true, Dialects: intent.Dialects(), Pools: placement.Pools{Online: all, Shared: all, Reclaimed: all},
		Placement: &pools.Policy{Tree: choose.NewTree(m), Sizing: sizing, NearDevices: true}, Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}},
	})}
}

// do decides an event like the conductor.
func (o *ours) do(ev *lifecycle.Event) {
	o.state.Commit(engine.Decide(o.state, ev, engine.Facts{}))
}

func podID(id int) string { return fmt.Sprint("s-", id) }
func ctrID(id int) string { return fmt.Sprint("c-", id) }

// create creates a pod with one container.
func (o *ours) create(id, milli, gibs int, parent string, annotations map[string]string) *engine.Container {
	name := fmt.Sprint("p", id)
	pod := &lifecycle.Pod{ID: podID(id), UID: "u-" + name, Namespace: "packing", Name: name, Labels: annotations, Annotations: annotations, CgroupParent: parent + name}
	ctr := &lifecycle.Container{ID: ctrID(id), PodID: pod.ID, Name: "main", State: lifecycle.StateRunning, CgroupsPath: pod.CgroupParent + "/c"}
	ctr.Resources = resources(milli, gibs)
	pod.Resources = &ctr.Resources
	o.do(&lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
	o.do(&lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr})
	o.do(&lifecycle.Event{Kind: lifecycle.StartContainer, Pod: pod, Container: ctr})
	return o.state.Container(ctr.ID)
}

func resources(milli, gibs int) lifecycle.Resources {
	var r lifecycle.Resources
	r.CPU = lifecycle.CPU{Shares: lifecycle.Some(max(uint64(milli)*1024/1000, 2)), Quota: lifecycle.Some(int64(milli) * 100)}
	if gibs > 0 {
		r.Memory.Limit = lifecycle.Some(int64(gibs) * gib)
	}
	return r
}

// requests returns an owner's annotations, which are also its labels: Katalyst's for a bound owner, otherwise
// Katalyst's and Koordinator's in turn.
func requests(e event, m *topology.Machine) map[string]string {
	out := map[string]string{}
	switch {
	case e.bound:
		out[intent.KatalystQoSLevel], out[intent.KatalystMemory] = "dedicated_cores", `{"numa_binding":"true"}`
		if e.whole {
			out[intent.KatalystCPU] = `{"full_pcpus_pairing":"true"}`
		}
	case e.lent:
		out[intent.KoordQoSClass] = "LSR"
	case e.id%2 == 0:
		out[intent.KoordQoSClass] = "LSE"
	default:
		out[intent.KatalystQoSLevel] = "dedicated_cores"
	}
	if e.whole && !e.bound {
		out[intent.KoordResourceSpec] = `{"requiredCPUBindPolicy":"FullPCPUs"}`
	}
	if e.device >= 0 {
		out[intent.KoordDevices] = fmt.Sprintf(`{"rdma":[{"minor":0,"id":%q}]}`, address(m.Nodes[e.device].ID))
	}
	return out
}

func (o *ours) own(e event) (placed, bool) {
	c := o.create(e.id, e.cpus*1000, e.gibs, "/kubepods/", requests(e, o.state.Machine))
	if c.Assignment.Pool != placement.Exclusive {
		o.end(e.id)
		return placed{}, false
	}
	p := placed{cpus: c.Assignment.Owned}
	if c.Mems != "" {
		ids, err := topology.ParseList(c.Mems)
		if err != nil {
			o.tb.Fatal(err)
		}
		p.mems = make([]bool, len(o.state.Machine.Nodes))
		for i, n := range o.state.Machine.Nodes {
			p.mems[i] = slices.Contains(ids, n.ID)
		}
	}
	return p, true
}

func (o *ours) resize(e event) (topology.Set, bool) {
	pod, c := o.state.Pod(podID(e.id)).Pod, o.state.Container(ctrID(e.id))
	r := resources(e.cpus*1000, 0)
	o.do(&lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: &lifecycle.Container{ID: c.ID, PodID: pod.ID, Name: c.Name}, Requested: &r})
	got := o.state.Container(c.ID).Assignment.Owned
	if got.Len() == e.cpus {
		return got, true
	}
	back := resources(got.Len()*1000, 0)
	o.do(&lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: &lifecycle.Container{ID: c.ID, PodID: pod.ID, Name: c.Name}, Requested: &back})
	return got, false
}

func (o *ours) share(e event) {
	annotations := map[string]string{intent.KatalystQoSLevel: "shared_cores"}
	if e.pool != "" {
		annotations[intent.KatalystCPU] = fmt.Sprintf(`{"cpuset_pool":%q}`, e.pool)
	}
	if e.bound {
		annotations[intent.KatalystMemory] = `{"numa_binding":"true"}`
	}
	o.shared[e.id] = e
	o.create(e.id, e.milli, 0, "/kubepods/burstable/", annotations)
}

func (o *ours) end(id int) {
	delete(o.shared, id)
	if p := o.state.Pod(podID(id)); p != nil {
		o.do(&lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: p.Pod})
	}
}

func (o *ours) pools() []pool {
	milli := map[placement.PoolID]int{}
	for id, e := range o.shared {
		milli[o.state.Container(ctrID(id)).Assignment.PoolID] += e.milli
	}
	var out []pool
	for _, s := range o.state.PoolShares() {
		if s.Pool != placement.Shared || s.Members == 0 {
			continue
		}
		p := pool{name: s.PoolID.String(), cpus: s.CPUs, need: (milli[s.PoolID] + 999) / 1000, node: -1}
		if s.PoolID.BoundToNodes && milli[s.PoolID] >= 1000 { // an owner that shrinks takes no CPU from others
			p.node, _ = o.state.Machine.NodeIndex(s.PoolID.Node)
		}
		out = append(out, p)
	}
	return out
}
