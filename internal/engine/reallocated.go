package engine

import (
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// updatablePluginValues returns the values of resource plugins that a running container can get.
func updatablePluginValues(values []lifecycle.Value) []lifecycle.Value {
	return slices.DeleteFunc(slices.Clone(values), func(v lifecycle.Value) bool {
		return v.Why.Hook != lifecycle.ResourcePluginName || !slices.Contains(updatableFields, v.Field)
	})
}

// pluginValuesDiffer reports whether the values that resource plugins allocate now (allocated) differ from the values
// that the container has. Only values that a running container can get count.
func pluginValuesDiffer(c *Container, allocated []lifecycle.Value) bool {
	have, now := updatablePluginValues(c.HookServerValues), updatablePluginValues(allocated)
	return len(have) != len(now) || slices.ContainsFunc(now, func(v lifecycle.Value) bool {
		return !slices.ContainsFunc(have, v.SameSetting)
	})
}

// PluginValuesDiffer reports whether resource plugins allocate other values now than a live container of the pod has.
// allocated has the values that they allocate now, by container name.
func (s *State) PluginValuesDiffer(p *Pod, allocated map[string][]lifecycle.Value) bool {
	return slices.ContainsFunc(s.containerIDsByPod[p.Pod.ID], func(id string) bool {
		c := s.Container(id)
		if c == nil || !c.Alive() {
			return false
		}
		values, known := allocated[c.Name]
		return known && pluginValuesDiffer(c, values)
	})
}

// reallocate gives a container the values that resource plugins allocate for the container now. It reports whether
// these values differ from the container's earlier values.
func (d *draft) reallocate(c *Container) bool {
	now, known := d.facts.PluginValues[c.Key.PodUID][c.Name]
	if !known || !pluginValuesDiffer(c, now) {
		return false
	}
	now = updatablePluginValues(now)
	c.HookServerValues = slices.DeleteFunc(slices.Clone(c.HookServerValues), func(v lifecycle.Value) bool {
		return v.Why.Hook == lifecycle.ResourcePluginName && slices.Contains(updatableFields, v.Field)
	})
	now = slices.DeleteFunc(now, func(v lifecycle.Value) bool { // hook servers have priority
		return slices.ContainsFunc(c.HookServerValues, func(o lifecycle.Value) bool { return o.Field == v.Field && o.Key == v.Key })
	})
	kept := slices.DeleteFunc(slices.Clone(c.decision.refusals), func(q lifecycle.Problem) bool { // mergeHookServerValues decides about these values again
		return slices.ContainsFunc(now, func(v lifecycle.Value) bool {
			return q.Hook == v.Why.Hook && q.Key == v.Why.Source+": "+v.Field.String()
		})
	})
	s := d.placer(c, nil)
	s.mergeHookServerValues(lifecycle.HookServerAnswer{Values: now, Problems: kept}, false)
	return true
}
