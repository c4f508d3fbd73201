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

// mergeHookServerValues stores those values of a hook server's answer that the container may have. It refuses CPUs that
// other containers own, and CPUs and memory nodes that do not exist. For an existing container, it also refuses values
// that only a creation can set. creating means that the container is being created.
func (s *placer) mergeHookServerValues(o lifecycle.HookServerAnswer, creating bool) {
	if o.Empty() {
		if creating {
			s.c.decision.refusals = nil
		}
		return
	}
	s.c.decision.refusals = slices.Clone(lifecycle.LimitProblems(o.Problems, lifecycle.MaxProblems))
	granted := slotValues{values: slices.Clone(s.c.HookServerValues)}
	defer func() { s.c.HookServerValues = granted.values }()
	for _, v := range o.Values {
		switch {
		case !creating && !slices.Contains(updatableFields, v.Field):
			s.c.deny(v, "only the creation of a container can set this value", "the value has no effect")
			continue
		case s.refusedByRule(v):
			continue
		case makesPartition(v):
			s.c.deny(v, "only the hook partition (hooks.partition) makes cpuset partitions, and only for pods that own CPUs", "the value has no effect")
			continue
		case v.Field == lifecycle.CPUSetCPUs:
			v.Text = s.grantHookServerCPUs(v)
		case v.Field == lifecycle.CPUSetMems:
			v.Text = s.grantHookServerMems(v)
		}
		if v.Text != "" || v.Field != lifecycle.CPUSetCPUs && v.Field != lifecycle.CPUSetMems {
			granted.set(v)
		}
	}
}

// pluginFields are the fields that resource plugins set and that authorization rules of the kind plugin-values can
// refuse.
var pluginFields = []lifecycle.Field{lifecycle.Env, lifecycle.Annotation, lifecycle.MountPoint, lifecycle.DeviceNode}

// refusedByRule reports whether an authorization rule refuses a value of a resource plugin. If a rule does,
// refusedByRule adds a problem.
func (s *placer) refusedByRule(v lifecycle.Value) bool {
	rule := s.p.Intent.PluginValuesRefusedBy
	if rule == "" || v.Why.Hook != lifecycle.ResourcePluginName || !slices.Contains(pluginFields, v.Field) {
		return false
	}
	s.c.denyByRule(rule, v, fmt.Sprintf("%s: pods of namespace %s may not have this value (authorization: %s)", intent.PluginKind, intent.Printable(s.p.Pod.Namespace), rule), "the agent leaves the value out")
	return true
}

// updatableFields are the fields that an update of a running container can set.
var updatableFields = []lifecycle.Field{
	lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit, lifecycle.Unified,
}

// slotValues is a list of values with at most one value per slot: one value per field, scope and key. It has an index,
// because a hook server may send thousands of environment variables.
type slotValues struct {
	values  []lifecycle.Value
	indexes map[slot]int // the index of a slot's value in values, plus 1
}

// slot identifies what a value sets: a field with its scope and key.
type slot struct {
	field lifecycle.Field
	scope lifecycle.Scope
	key   string
}

// find returns the index of the value with the same slot as v; -1 if the list has no such value.
func (l *slotValues) find(v lifecycle.Value) int {
	if l.indexes == nil {
		l.indexes = make(map[slot]int, len(l.values))
		for i := len(l.values) - 1; i >= 0; i-- { // backwards, so that the first value of a slot wins
			l.indexes[slot{l.values[i].Field, l.values[i].Scope, l.values[i].Key}] = i + 1
		}
	}
	return l.indexes[slot{v.Field, v.Scope, v.Key}] - 1
}

// set adds a value, or replaces the value with the same slot.
func (l *slotValues) set(v lifecycle.Value) {
	if i := l.find(v); i >= 0 {
		l.values[i] = v
		return
	}
	l.values = append(l.values, v)
	l.indexes[slot{v.Field, v.Scope, v.Key}] = len(l.values)
}

// NotOverridden returns the earlier values of hook servers (have), but without the values of fields that the update r
// sets. The update replaces these values. Hook servers can send new values for the update.
func NotOverridden(have []lifecycle.Value, r *lifecycle.Resources) []lifecycle.Value {
	if r == nil || len(have) == 0 {
		return have
	}
	return slices.DeleteFunc(slices.Clone(have), func(v lifecycle.Value) bool {
		asked, set := r.Value(v.Field, v.Key)
		return asked.Int != 0 || asked.Text != "" || v.Field == lifecycle.Unified && set
	})
}

// deny adds a problem for a value that the container does not get.
func (c *Container) deny(v lifecycle.Value, why, then string) { c.denyByRule("", v, why, then) }

// denyByRule adds a problem for a value that the container does not get. rule is the name of the
// authorization rule that refuses the value; "" for none.
func (c *Container) denyByRule(rule string, v lifecycle.Value, why, then string) {
	c.decision.refusals = lifecycle.LimitProblems(append(c.decision.refusals, lifecycle.Problem{
		Hook: cmp.Or(v.Why.Hook, lifecycle.HookServerName), Key: v.Why.Source + ": " + v.Field.String(), Value: intent.Printable(cmp.Or(v.Key, v.String())),
		Reason: why, Then: then, Refused: true, Rule: rule,
	}), lifecycle.MaxProblems)
}

// grantHookServerCPUs returns the CPUs in a hook server's value that a container may use, as a kernel list: CPUs that
// are online, that the pod's cgroup allows, and that have no owner.
func (s *placer) grantHookServerCPUs(v lifecycle.Value) string {
	cpus, err := s.n.machine.ParseCPUs(v.Text)
	if err != nil {
		s.c.deny(v, err.Error(), "the container gets the CPUs that it would get without this value")
		return ""
	}
	if _, owns := s.n.ledger.GrantOf(s.c.Key); owns {
		return v.Text // the container owns CPUs, so dropHookServerCPUs later removes this value, and adds a problem if the CPUs differ
	}
	given, _ := s.n.externallyOwned(s.p, cpus)
	owner := firstOf(s.n.ledger.Grants(), func(g placement.Grant) bool { return !g.CPUs.And(cpus).Empty() })
	for _, taken := range []struct {
		cpus topology.Set
		why  string
	}{
		{cpus.Minus(s.n.usableCPUs(s.p)), "are not allowed in the pod's cgroup"},
		{cpus.And(s.n.ledger.OwnedCPUs()), "are owned by " + cmp.Or(owner.Pod, "nobody")},
		{given, "were given to others by " + s.n.policy.externalCPUSource()},
	} {
		if taken.cpus.Empty() {
			continue
		}
		cpus = cpus.Minus(taken.cpus)
		then := "the container gets only CPUs " + s.n.machine.Format(cpus)
		if cpus.Empty() {
			then = "the container gets the CPUs that it would get without this value"
		}
		s.c.deny(v, fmt.Sprintf("CPUs %s %s", s.n.machine.Format(taken.cpus), taken.why), then)
	}
	return s.n.machine.Format(cpus)
}

// grantHookServerMems returns the memory nodes in a hook server's value if the container can use all of them. If one of
// these nodes has no memory, or if the kubelet bound the container to memory nodes, grantHookServerMems returns "" and
// adds a problem.
func (s *placer) grantHookServerMems(v lifecycle.Value) string {
	if bound := s.termsNow().External.Mems; len(bound) > 0 {
		s.c.deny(v, fmt.Sprintf("the kubelet's memory manager bound the container to memory nodes %s, and authority: kubelet lets the kubelet decide", topology.FormatList(bound)), "the container keeps these memory nodes")
		return ""
	}
	ids, err := topology.ParseList(v.Text)
	if err != nil {
		s.c.deny(v, err.Error(), "the container keeps its memory nodes")
		return ""
	}
	nodes := memoryNodes(s.n.machine)
	if i := slices.IndexFunc(ids, func(id int) bool { return !slices.Contains(nodes, id) }); i >= 0 {
		s.c.deny(v, fmt.Sprintf("NUMA node %d has no memory", ids[i]), "the container keeps its memory nodes")
		return ""
	}
	return topology.FormatList(ids)
}

// memoryNodes returns the ids of the nodes with memory. If the memory of the nodes is not known, it returns
// all nodes.
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

// hookServerCPUs returns the CPUs that a hook server chose and that the container may use, and the hook server's value
// with these CPUs. Without such a value, both results are empty.
func (s *placer) hookServerCPUs() (topology.Set, lifecycle.Value) {
	v := firstOf(s.c.HookServerValues, func(v lifecycle.Value) bool { return v.Field == lifecycle.CPUSetCPUs })
	return s.n.machine.OnlineOf(v.Text), v
}

// limitToHookServerCPUs limits a container in a pool to the CPUs of hookServerCPUs. Another container may later own
// some of these CPUs. This container then loses them, like other CPUs of a pool.
func (s *placer) limitToHookServerCPUs() {
	cpus, v := s.hookServerCPUs()
	if cpus = cpus.And(s.n.usableCPUs(s.p)); cpus.Empty() {
		return
	}
	s.c.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Unclassified, AllowedCPUs: cpus}
	s.c.Assignment.From, s.c.Assignment.Why = v.Why.Source, hookServerReason(v)
	s.c.decision.cpusetLimited = true // write the list even if it has all CPUs of the pool
}

// hookServerReason says, for users, whether a resource plugin or a hook server chose the CPUs in a value.
func hookServerReason(v lifecycle.Value) string {
	if v.Why.Hook == lifecycle.ResourcePluginName {
		return "CPUs that a resource plugin chose"
	}
	return "CPUs that a hook server chose"
}

// dropHookServerCPUs removes the CPUs that a hook server chose from a container that owns CPUs. It adds a problem if
// these CPUs differ from the owned CPUs.
func (s *placer) dropHookServerCPUs(owned topology.Set) {
	cpus, v := s.hookServerCPUs()
	if v.Field != lifecycle.CPUSetCPUs {
		return
	}
	s.c.HookServerValues = slices.DeleteFunc(slices.Clone(s.c.HookServerValues), func(o lifecycle.Value) bool { return o.Field == lifecycle.CPUSetCPUs })
	if cpus != owned {
		s.c.deny(v, fmt.Sprintf("the container owns CPUs %s", s.n.machine.Format(owned)), "the container keeps these CPUs")
	}
}

// applyHookServerValues adds the container's values from hook servers to the proposals of hooks. Such a value replaces
// the proposal for the same field and key.
func (o *output) applyHookServerValues(values []lifecycle.Value) []lifecycle.Value {
	if len(o.c.HookServerValues) == 0 {
		return values
	}
	all := slotValues{values: values}
	for _, v := range o.c.HookServerValues {
		if v.Field == lifecycle.CPUSetCPUs {
			if o.c.Assignment.From != v.Why.Source || o.c.Assignment.Pool != placement.Unclassified {
				continue // the container can use none of these CPUs now, so it uses the CPUs of its pool
			}
			v.Text = o.n.cpuList(o.c.Assignment.CPUGroup)
		}
		if at := all.find(v); at >= 0 && v.Field != lifecycle.CPUSetCPUs && !all.values[at].SameSetting(v) {
			v.Why.Text += fmt.Sprintf(", instead of the proposal of hook %s: %s", all.values[at].Why.Hook, all.values[at])
		}
		all.set(v)
	}
	return all.values
}
