package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// mergeExternal grants a container the values of hook servers as far as possible, and stores
// them. It refuses CPUs that others own, resources that do not exist, and values that only a
// creation can set if the container exists.
func (s *placer) mergeExternal(o lifecycle.HookServerAnswer, creating bool) {
	if o.Empty() {
		if creating {
			s.c.decided.refusals = nil
		}
		return
	}
	s.c.decided.refusals = slices.Clone(lifecycle.Bound(o.Problems, lifecycle.MaxProblems))
	granted := slotValues{values: slices.Clone(s.c.HookServerValues)}
	defer func() { s.c.HookServerValues = granted.values }()
	for _, v := range o.Values {
		switch {
		case !creating && !slices.Contains(inUpdates, v.Field):
			s.c.deny(v, "only the creation of a container can set it", "nothing changes")
			continue
		case s.refusedOfPlugin(v):
			continue
		case makesPartition(v):
			s.c.deny(v, "only hooks.partition makes partitions, of pods that own CPUs", "nothing changes")
			continue
		case v.Field == lifecycle.CPUSetCPUs:
			v.Text = s.grantExternalCPUs(v)
		case v.Field == lifecycle.CPUSetMems:
			v.Text = s.grantExternalMemory(v)
		}
		if v.Text != "" || v.Field != lifecycle.CPUSetCPUs && v.Field != lifecycle.CPUSetMems {
			granted.set(v)
		}
	}
}

// ofPlugins are the fields of resource plugins that rules for the kind plugin-values are about.
var ofPlugins = []lifecycle.Field{lifecycle.Env, lifecycle.Annotation, lifecycle.MountPoint, lifecycle.DeviceNode}

// refusedOfPlugin reports whether a rule refuses a value of a resource plugin, and notes that.
func (s *placer) refusedOfPlugin(v lifecycle.Value) bool {
	rule := s.p.Intent.NoPluginValues
	if rule == "" || v.Why.Hook != lifecycle.ResourcePluginName || !slices.Contains(ofPlugins, v.Field) {
		return false
	}
	s.c.denyBy(rule, v, fmt.Sprintf("%s: pods of namespace %s may not have it (authorization: %s)", intent.PluginKind, intent.Printable(s.p.Pod.Namespace), rule), "it is left out")
	return true
}

// inUpdates are the fields that an update can set.
var inUpdates = []lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit, lifecycle.Unified,
}

// slotValues is a list of values with at most one per slot. A hook server may answer with
// thousands of variables.
type slotValues struct {
	values []lifecycle.Value
	at     map[slot]int // the index + 1, by slot
}

// slot is what a value sets: a field, with its key.
type slot struct {
	field lifecycle.Field
	scope lifecycle.Scope
	key   string
}

// find returns the index of the value with the same slot; -1 if no value has it.
func (l *slotValues) find(v lifecycle.Value) int {
	if l.at == nil {
		l.at = make(map[slot]int, len(l.values))
		for i := len(l.values) - 1; i >= 0; i-- { // the first value of a slot counts
			l.at[slot{l.values[i].Field, l.values[i].Scope, l.values[i].Key}] = i + 1
		}
	}
	return l.at[slot{v.Field, v.Scope, v.Key}] - 1
}

// set adds a value, or replaces the value with the same slot.
func (l *slotValues) set(v lifecycle.Value) {
	if i := l.find(v); i >= 0 {
		l.values[i] = v
		return
	}
	l.values = append(l.values, v)
	l.at[slot{v.Field, v.Scope, v.Key}] = len(l.values)
}

// NotOverridden returns the earlier hook server values for resources that an update does not
// request. For the others the update's request counts, unless a hook server answers again.
func NotOverridden(have []lifecycle.Value, r *lifecycle.Resources) []lifecycle.Value {
	if r == nil || len(have) == 0 {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(v lifecycle.Value) bool {
		asked, set := r.Of(v.Field, v.Key)
		return asked.Int != 0 || asked.Text != "" || v.Field == lifecycle.Unified && set
	})
}

// deny reports a value that is not granted.
func (c *Container) deny(v lifecycle.Value, why, then string) { c.denyBy("", v, why, then) }

// denyBy reports a value that a rule refuses; "" for no rule.
func (c *Container) denyBy(rule string, v lifecycle.Value, why, then string) {
	c.decided.refusals = lifecycle.Bound(append(c.decided.refusals, lifecycle.Problem{
		Hook: cmp.Or(v.Why.Hook, lifecycle.HookServerName), Key: v.Why.Source + ": " + v.Field.String(), Value: intent.Printable(cmp.Or(v.Key, v.String())),
		Reason: why, Then: then, Refused: true, Rule: rule,
	}), lifecycle.MaxProblems)
}

// grantExternalCPUs returns, as a kernel list, the CPUs of a hook server that a container may
// use. They exist on this machine, are allowed in the pod's cgroup, and have no owner.
func (s *placer) grantExternalCPUs(v lifecycle.Value) string {
	cpus, err := s.n.machine.ParseCPUs(v.Text)
	if err != nil {
		s.c.deny(v, err.Error(), "it keeps the CPUs it would have")
		return ""
	}
	if _, owns := s.n.ledger.Of(s.c.Key); owns {
		return v.Text // reported when the container gets its CPUs
	}
	given, _ := s.n.kubeletOwned(s.p, cpus)
	owner := firstOf(s.n.ledger.Grants(), func(g placement.Grant) bool { return !g.CPUs.And(cpus).Empty() })
	for _, taken := range []struct {
		cpus topology.Set
		why  string
	}{
		{cpus.Minus(s.n.reach(s.p)), "are not allowed in the pod's cgroup"},
		{cpus.And(s.n.ledger.Exclusive()), "are owned by " + cmp.Or(owner.Pod, "nobody")},
		{given, "were given to others by the kubelet's static CPU manager"},
	} {
		if taken.cpus.Empty() {
			continue
		}
		cpus = cpus.Minus(taken.cpus)
		then := "it gets the others, " + s.n.machine.Format(cpus)
		if cpus.Empty() {
			then = "it keeps the CPUs it would have"
		}
		s.c.deny(v, fmt.Sprintf("CPUs %s %s", s.n.machine.Format(taken.cpus), taken.why), then)
	}
	return s.n.machine.Format(cpus)
}

// grantExternalMemory returns the memory nodes of a hook server that a container may use. These
// are all of them, or none if a node has no memory or the kubelet bound the container to other
// nodes.
func (s *placer) grantExternalMemory(v lifecycle.Value) string {
	if bound := s.n.termsOf(s.p, s.c.Name, &s.c.Pristine).External.Mems; len(bound) > 0 {
		s.c.deny(v, fmt.Sprintf("the kubelet's memory manager bound it to nodes %s, and with authority: kubelet the kubelet decides", topology.FormatList(bound)), "it keeps these")
		return ""
	}
	ids, err := topology.ParseList(v.Text)
	if err != nil {
		s.c.deny(v, err.Error(), "it keeps the memory nodes it has")
		return ""
	}
	nodes := memoryNodes(s.n.machine)
	if i := slices.IndexFunc(ids, func(id int) bool { return !slices.Contains(nodes, id) }); i >= 0 {
		s.c.deny(v, fmt.Sprintf("node %d has no memory", ids[i]), "it keeps the memory nodes it has")
		return ""
	}
	return topology.FormatList(ids)
}

// memoryNodes returns the ids of the nodes with memory; all nodes if their memory is not known.
func memoryNodes(m *topology.Machine) []int {
	var with, all []int
	for _, n := range m.Nodes {
		all = append(all, n.ID)
		if n.Memory > 0 {
			with = append(with, n.ID)
		}
	}
	if len(with) == 0 {
		return all
	}
	return with
}

// externalCPUs returns the hook server CPUs that a container was granted, and the value that
// contains them.
func (s *placer) externalCPUs() (topology.Set, lifecycle.Value) {
	v := firstOf(s.c.HookServerValues, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUSetCPUs })
	return s.n.machine.OnlineOf(v.Text), v
}

// shareExternal limits a container in a pool to the hook server's CPUs that it was granted. A
// later owner can take some of these CPUs, as it can from any pool.
func (s *placer) shareExternal() {
	cpus, v := s.externalCPUs()
	if cpus = cpus.And(s.n.reach(s.p)); cpus.Empty() {
		return
	}
	s.c.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Unclassified, Within: cpus}
	s.c.Assignment.From, s.c.Assignment.Why = v.Why.Source, externalWhy(v)
	s.c.decided.narrowed = true // write the list even if it has all CPUs of the pool
}

// externalWhy says who chose the CPUs of a value.
func externalWhy(v lifecycle.Value) string {
	if v.Why.Hook == lifecycle.ResourcePluginName {
		return "CPUs a resource plugin chose"
	}
	return "CPUs a hook server chose"
}

// ownNotExternal drops the CPUs that a hook server requests for a container that owns CPUs.
func (s *placer) ownNotExternal(owned topology.Set) {
	cpus, v := s.externalCPUs()
	if v.Field != lifecycle.CPUSetCPUs {
		return
	}
	s.c.HookServerValues = slices.DeleteFunc(slices.Clone(s.c.HookServerValues), func(o lifecycle.Value) bool { return o.Field == lifecycle.CPUSetCPUs })
	if cpus != owned {
		s.c.deny(v, fmt.Sprintf("the container owns CPUs %s", s.n.machine.Format(owned)), "it keeps them")
	}
}

// applyExternal replaces proposals of hooks by the granted values of hook servers.
func (o *output) applyExternal(values []lifecycle.Value) []lifecycle.Value {
	if len(o.c.HookServerValues) == 0 {
		return values
	}
	all := slotValues{values: values}
	for _, v := range o.c.HookServerValues {
		if v.Field == lifecycle.CPUSetCPUs {
			if o.c.Assignment.From != v.Why.Source || o.c.Assignment.Pool != placement.Unclassified {
				continue // if the container can use none of these CPUs now, it uses the pool's CPUs
			}
			v.Text = o.n.cpuList(o.c.Assignment.CPUGroup)
		}
		if at := all.find(v); at >= 0 && v.Field != lifecycle.CPUSetCPUs && !all.values[at].SameSetting(v) {
			v.Why.Text += fmt.Sprintf(", before %s's %s", all.values[at].Why.Hook, all.values[at])
		}
		all.set(v)
	}
	return all.values
}
