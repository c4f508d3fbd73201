package nodeview

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// Adoption compares the present CPUs and memory nodes of running containers with those that a state assigns to them.
// kernelCPUs has, by container id, the CPUs that the kernel lets a container use, as a kernel list; "" means all.
// formerContainers has, by container id, what another agent assigned to a container.
func Adoption(s *engine.State, kernelCPUs map[string]string, formerContainers map[string]lifecycle.FormerContainer) (out api.Adoption) {
	all := s.Machine.Format(s.Machine.Online())
	for _, id := range s.Containers() {
		ctr := s.Container(id)
		list, runs := kernelCPUs[id]
		p := s.Pod(ctr.PodID)
		if p == nil || !ctr.Alive() || !runs {
			continue
		}
		f := formerContainers[id]
		a := api.Adopted{
			Pod: p.FullName(), Container: ctr.Name, Class: f.Class, Source: f.Where, Group: ctr.Assignment.Pool.String(),
			CPUsNow: all, CPUsAfter: s.Machine.Format(s.CPUs(ctr)), MemsNow: f.Mems, MemsAfter: f.Mems,
		}
		if list != "" {
			a.CPUsNow = s.Machine.Format(s.Machine.OnlineOf(list))
		}
		if a.CPUsAfter == "" {
			a.CPUsAfter = a.CPUsNow
		}
		for _, v := range s.Values(ctr) {
			if v.Field == lifecycle.CPUSetMems && f.Mems != "" {
				a.MemsAfter = v.Text
			}
		}
		if a.Unchanged = a.CPUsNow == a.CPUsAfter && a.MemsNow == a.MemsAfter; !a.Unchanged {
			out.Moves++
			a.Why = ctr.Assignment.Why
		}
		if i := slices.IndexFunc(s.Problems(ctr), func(q lifecycle.Problem) bool { return q.Key == engine.FormerKey }); i >= 0 {
			a.Why = s.Problems(ctr)[i].Reason
		}
		out.Containers = append(out.Containers, a)
	}
	slices.SortFunc(out.Containers, api.Adopted.Compare)
	return out
}
