package nodeview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
)

// maxContested limits the list of files that other programs also write, and maxWithoutCgroup the list of containers
// without a cgroup, in one status.
const (
	maxContested     = 20
	maxWithoutCgroup = 20
)

// Status returns what is decided on the node. Package agent sets the other fields.
func Status(source Source) api.Node {
	n, k := read(source, (*View).status)
	n.Contested = contestedFiles(k)
	return n
}

// status does the work of Status, without the contested files.
func (v *View) status() api.Node {
	n := api.Node{CPUs: v.cpus(), WithoutCgroup: v.withoutCgroup(maxWithoutCgroup), Attachments: v.Attached(), Observed: v.Observed, CPUClasses: CPUClasses(v.CPUClasses), Demotion: demotionOf(v.Demotion)}
	for _, c := range v.State.Conditions() {
		n.Rules = append(n.Rules, api.Rule{Name: c.Hook, Match: c.Condition, Matched: c.Matched})
	}
	for _, id := range v.State.Containers() {
		ctr := v.State.Container(id)
		s := v.container(ctr)
		n.Unapplied += countUnapplied(s.Values)
		n.Problems += len(v.State.Problems(ctr))
		if _, absent := v.MissingCgroups[id]; absent {
			n.Problems++
		}
		if v.conflict(ctr) != nil {
			n.Problems++
		}
		n.Containers = append(n.Containers, s)
	}
	for _, id := range v.State.Pods() {
		p := v.State.Pod(id)
		n.Unapplied += countUnapplied(v.values(id, p.Values))
		n.Problems += len(p.Problems())
	}
	return n
}

// contestedFiles lists the agent's files that other programs also write.
func contestedFiles(k *keeper.Keeper) (out []api.Contested) {
	list, _, _ := k.ContestedFiles(maxContested)
	for _, f := range list {
		s := api.Contested{Owner: f.Owner, File: f.File, Repairs: f.Writes}
		if f.CededReason != nil {
			s.GaveUpReason = f.CededReason.Error()
		}
		if f.ThrottledReason != nil {
			s.RepairReason = f.ThrottledReason.Error()
		}
		out = append(out, s)
	}
	return out
}

// countUnapplied returns how many of the values are not in force.
func countUnapplied(values []api.Value) int {
	n := 0
	for _, v := range values {
		if !v.Applied {
			n++
		}
	}
	return n
}

// cpus returns the CPUs of the node, the CPUs of each pool, and the containers that own CPUs.
func (v *View) cpus() api.NodeCPUs {
	m, s := v.State.Machine, v.State
	out := api.NodeCPUs{
		Online: m.Format(m.Online()), Reserved: m.Format(s.Policy.Pools.Reserved), Exclusive: m.Format(s.OwnedCPUs()),
		Shared: m.Format(s.PoolCPUs(placement.Shared)), Reclaimed: m.Format(s.PoolCPUs(placement.Reclaimed)),
	}
	for _, n := range m.Nodes {
		out.Nodes = append(out.Nodes, api.NUMAOf(m, n))
	}
	for _, p := range s.PoolShares() {
		pool := api.Pool{Name: poolName(p.Pool, p.PoolID), Class: p.Pool.String(), CPUs: m.Format(p.CPUs), Members: p.Members}
		if p.Pool == placement.Unclassified {
			pool.Class = intent.None.String()
		}
		out.Pools = append(out.Pools, pool)
	}
	out.Grants = v.grants()
	return out
}

// poolName is the name of a pool in reports.
func poolName(pool placement.PoolKind, which placement.PoolID) string {
	return strings.TrimSuffix(pool.String()+" "+which.String(), " ")
}

// grants lists which containers own which CPUs, and which of these CPUs their owners cannot use now.
func (v *View) grants() []api.Grant {
	m := v.State.Machine
	reserved := map[placement.Key]placement.Grant{}
	for _, g := range v.State.ReservedGrants() {
		reserved[g.Key] = g
	}
	var out []api.Grant
	for _, g := range v.State.Grants() {
		out = append(out, api.Grant{Pod: g.Pod, Container: g.Key.Container, CPUs: m.Format(g.CPUs), Unusable: m.Format(reserved[g.Key].CPUs)})
		delete(reserved, g.Key)
	}
	for _, g := range v.State.ReservedGrants() {
		if _, isReserved := reserved[g.Key]; isReserved {
			out = append(out, api.Grant{Pod: g.Pod, Container: g.Key.Container, Unusable: m.Format(g.CPUs)})
		}
	}
	return out
}

// Explain returns, for one or all containers of a pod, what was decided, why, and the results.
// A pod without containers has an entry of its own.
func Explain(source Source, namespace, pod, container string) (out []api.Container, known bool) {
	source.View(func(v *View) {
		for _, id := range v.State.Pods() {
			p := v.State.Pod(id)
			if p.Pod.Namespace != namespace || p.Pod.Name != pod {
				continue
			}
			ids := v.State.ContainersOf(id)
			for _, cid := range ids {
				if ctr := v.State.Container(cid); container == "" || ctr.Name == container {
					s := v.container(ctr)
					s.Facts, s.CPUClasses, s.Demotion = factsOf(v.State, p, ctr), v.containerClasses(ctr), v.containerDemotion(ctr)
					out = append(out, s)
				}
			}
			if len(ids) == 0 && container == "" {
				out = append(out, v.podStatus(p))
			}
		}
	})
	return out, len(out) > 0
}

// podStatus returns the entry of a pod without containers. The entry of a container begins with the same fields.
func (v *View) podStatus(p *engine.Pod) api.Container {
	s := api.Container{
		Pod: p.FullName(), State: "no container yet", Class: p.Intent.Class.V.String(), ClassFrom: p.Intent.Class.Key,
		Labels: p.Pod.Labels,
		QoS:    p.Intent.QoS.String(), PodValues: v.values(p.Pod.ID, p.Values),
	}
	s.Problems = p.Problems()
	return s
}

// limits returns a container's limits for CPU and memory: the decided limit, or the requested limit if nothing was
// decided.
func limits(ctr *engine.Container, decided []lifecycle.Value) *api.Limits {
	const usualPeriod = 100_000 // µs, the default of the kernel and of the kubelet
	r := ctr.Pristine
	l := &api.Limits{CPUQuota: r.CPU.Quota.V, CPUPeriod: int64(r.CPU.Period.Or(usualPeriod)), Memory: r.Memory.Limit.V}
	for _, d := range decided {
		for field, into := range map[lifecycle.Field]*int64{
			lifecycle.CPUQuota: &l.CPUQuota, lifecycle.CPUPeriod: &l.CPUPeriod, lifecycle.MemoryLimit: &l.Memory,
		} {
			if n, err := strconv.ParseInt(d.String(), 10, 64); d.Field == field && err == nil {
				*into = n
			}
		}
	}
	for _, unlimited := range []*int64{&l.CPUQuota, &l.Memory} {
		if *unlimited <= 0 {
			*unlimited = -1
		}
	}
	return l
}

// container returns the entry of a container for status and explain.
func (v *View) container(ctr *engine.Container) api.Container {
	p := v.State.Pod(ctr.PodID)
	s := v.podStatus(p)
	s.Name, s.ID, s.State = ctr.Name, ctr.ID, ctr.Life.String()
	if dir, absent := v.MissingCgroups[ctr.ID]; absent { // inserted as the first problem, so that LimitProblems keeps it
		s.Problems = slices.Insert(s.Problems, 0, lifecycle.Problem{
			Key: "cgroup.root", Value: dir, Reason: "the container runs, but its cgroup is not in the tree at cgroup.root, so none of its values is in force",
		})
	}
	if p := v.conflict(ctr); p != nil {
		s.Problems = slices.Insert(s.Problems, 0, *p)
	}
	s.Problems = lifecycle.LimitProblems(slices.Concat(s.Problems, v.State.Problems(ctr)), lifecycle.MaxProblems)
	if !ctr.Alive() {
		s.CPUGroup = "none"
		return s
	}
	s.CPUGroup, s.CPUGroupWhy = ctr.Assignment.Pool.String(), v.State.PlacementReason(ctr)
	s.CPUs = v.State.Machine.Format(v.State.CPUs(ctr))
	s.Values = v.values(ctr.ID, v.State.Values(ctr))
	s.Limits = limits(ctr, v.State.Values(ctr))
	return s
}
