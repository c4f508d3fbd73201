package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// reallocatable returns the values of resource plugins that a running container can get.
func reallocatable(values []lifecycle.Value) []lifecycle.Value {
	return slices.DeleteFunc(slices.Clone(values), func(v lifecycle.Value) bool {
		return v.Why.Hook != lifecycle.ResourcePluginName || !slices.Contains(updatableFields, v.Field)
	})
}

// reallocated reports whether now, the values that resource plugins allocate now, differ from those that a
// container has.
func reallocated(c *Container, now []lifecycle.Value) bool {
	have, now := reallocatable(c.HookServerValues), reallocatable(now)
	return len(have) != len(now) || slices.ContainsFunc(now, func(v lifecycle.Value) bool {
		return !slices.ContainsFunc(have, v.SameSetting)
	})
}

// Reallocated reports whether resource plugins allocate other values now than a container of the pod has. now
// has the values by container name.
func (s *State) Reallocated(p *Pod, now map[string][]lifecycle.Value) bool {
	return slices.ContainsFunc(s.byPod[p.Pod.ID], func(id string) bool {
		c := s.Container(id)
		if c == nil || !c.Alive() {
			return false
		}
		values, known := now[c.Name]
		return known && reallocated(c, values)
	})
}

// reallocate gives a container the values that resource plugins allocate for it now. It reports whether these
// differ from the values that it had.
func (d *draft) reallocate(c *Container) bool {
	now, known := d.facts.Allocated[c.Key.PodUID][c.Name]
	if !known || !reallocated(c, now) {
		return false
	}
	now = reallocatable(now)
	c.HookServerValues = slices.DeleteFunc(slices.Clone(c.HookServerValues), func(v lifecycle.Value) bool {
		return v.Why.Hook == lifecycle.ResourcePluginName && slices.Contains(updatableFields, v.Field)
	})
	now = slices.DeleteFunc(now, func(v lifecycle.Value) bool { // hook servers have priority
		return slices.ContainsFunc(c.HookServerValues, func(o lifecycle.Value) bool { return o.Field == v.Field && o.Key == v.Key })
	})
	kept := slices.DeleteFunc(slices.Clone(c.decided.refusals), func(q lifecycle.Problem) bool { // mergeExternal decides about these values again
		return slices.ContainsFunc(now, func(v lifecycle.Value) bool {
			return q.Hook == v.Why.Hook && q.Key == v.Why.Source+": "+v.Field.String()
		})
	})
	s := d.placer(c, nil)
	s.mergeExternal(lifecycle.HookServerAnswer{Values: now, Problems: kept}, false)
	return true
}
