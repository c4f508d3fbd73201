package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// input makes the input of the hooks for a container, or for the pod if c is nil.
func (o *output) input() *hook.Input {
	in := &hook.Input{Pod: o.p.Pod, Intent: o.p.Intent, Spec: o.p.Spec}
	if o.c == nil {
		in.Pristine, in.BurstSum, in.ExclusiveCPUs = o.p.Pod.Resources, o.p.burstSum, o.n.machine.Format(o.p.exclusiveCPUs)
		if !o.p.assignedCPUs.Empty() {
			in.Pool, in.AssignedBy = placement.Exclusive, o.p.Intent.CPUs.Key
		} else if !o.n.ledger.CPUsOfPod(o.p.Pod.UID).Empty() && o.n.choosesCPUsForWholePod(o.p) {
			in.Pool, in.AssignedBy = placement.Exclusive, o.p.Intent.Class.Key
		}
		return in
	}
	in.Container, in.ContainerProperties, in.Pristine = o.c.Name, o.c.Properties, &o.c.Pristine
	in.Pool, in.AssignedBy, in.AssignedWhy = o.c.Assignment.Pool, o.c.Assignment.From, o.c.placementReason(o.n.machine)
	if o.c.Assignment.OwnsAndShares() { // hooks must not remove the container's quota, because the container also shares CPUs
		in.Pool = placement.TreePool
	}
	in.Machine = o.n.machine
	in.CPUs, in.Mems = o.n.cpuList(o.c.Assignment.CPUGroup), o.c.Mems
	in.ColdStart = o.c.ColdStart
	if placement.IsExternal(o.c.Assignment.From) {
		in.Pool, in.Mems = placement.Unclassified, ""
		if o.c.Assignment.Owned == o.n.machine.OnlineOf(o.c.Pristine.CPU.CPUs) {
			in.CPUs = "" // the runtime's request already has these CPUs
		}
	}
	in.GrantedDevices, in.RequestedDevices = o.p.Granted.DevicesOf(o.c.Name), o.c.RequestedDevices
	in.CPUEnv, in.Scheduling, in.SkippedInterfaces = o.c.CPUEnv, o.c.Scheduling, o.c.SkippedInterfaces
	in.ExclusiveDevices, in.DevicesRefused, in.TakenDevices = o.c.CDIDevices, o.c.DevicesRefused, o.n.takenDevices(o.p, o.c)
	if o.c.decision.creation != nil { // a hook needs values that are known only while the container is created
		now := *o.c.decision.creation
		if now.PodValues = o.p.Values; o.c.Assignment.Pool == placement.Exclusive {
			now.OwnedCPUs = o.n.machine.Format(o.c.Assignment.Owned)
		}
		cpus, _ := o.n.layout(o.c).CPUs(o.c.Assignment.CPUGroup) // the layout must count this container, because pools are as large as their containers' requests
		now.CPUs, in.Creation = cpus.Len(), &now
		now.PodInterfaces = o.n.podInterfaces(o.c)
	}
	return in
}

// podInterfaces returns the names of the network interfaces with which other containers of the pod were created. The
// value is true if a container with this interface has not started yet.
func (n *view) podInterfaces(c *Container) (all map[string]bool) {
	for _, other := range n.containersOf(c.PodID) {
		if other.ID == c.ID {
			continue
		}
		for i := range other.decision.proposed {
			if v := &other.decision.proposed[i]; v.Field == lifecycle.NetDevice {
				if all == nil {
					all = map[string]bool{}
				}
				all[v.Key] = all[v.Key] || other.Life == lifecycle.StateCreated
			}
		}
	}
	return all
}

// cpuList returns the CPUs of a group as a kernel list. If no CPUs have changed, it returns the list in the state.
func (n *view) cpuList(group placement.CPUGroup) string {
	if b := n.base.groups[group]; b != nil && !n.ledger.grantsChanged && !n.ignoresBase {
		return b.cpuList
	}
	cpus, _ := n.layout(nil).CPUs(group)
	return n.machine.Format(cpus)
}

// output collects the proposals of hooks, and merges them by the composition rules of the fields.
type output struct {
	hook.Output

	n *view
	p *Pod
	c *Container // nil if the hooks run for the pod p itself
	// hookFailure is the error of a hook that failed, if failurePolicy.hooks refuses containers because of it.
	hookFailure string
	// hookRefusal is the reason why a hook refuses the container; "" if none does. refusingHook is the name of that
	// hook.
	hookRefusal, refusingHook string
}

// runHook runs one hook. If the hook panics, runHook drops the proposals of this hook, and adds a problem with the
// panic.
func (o *output) runHook(h hook.Hook, in *hook.Input) {
	had, scales, trouble := len(o.Values), len(o.Scales), len(o.Problems)
	defer func() {
		if r := recover(); r != nil {
			name := h.Info().Name
			p := lifecycle.Problem{Hook: name, Reason: fmt.Sprintf("hook %s failed and proposes nothing: %v", name, r)}
			o.Values, o.Scales, o.Problems = o.Values[:had], o.Scales[:scales], append(o.Problems[:trouble], p)
			if o.n.policy.FatalHooks[name] {
				o.hookFailure = p.Reason
			}
		}
	}()
	h.Propose(in, &o.Output)
	o.noteResults(h)
	proposed := o.Values[had:]
	o.Values = o.Values[:had] // addValue reuses the same array, and writes only at positions that the loop has read
	for _, v := range proposed {
		o.addValue(v)
	}
	for i := trouble; i < len(o.Problems); i++ {
		o.Problems[i].Hook = h.Info().Name
	}
}

// noteResults notes whether the condition of a hook matched, and whether the hook failed or refuses the
// container.
func (o *output) noteResults(h hook.Hook) {
	if !o.Matched && o.Failure == "" {
		return
	}
	id, isNew := o.p.Pod.ID, o.n.base.pods[o.p.Pod.ID] == nil
	if o.c != nil {
		id, isNew = o.c.ID, o.n.base.containers[o.c.ID] == nil
	}
	o.n.noteHookResult(h, &o.Output, id, isNew)
	if o.Refusal != "" && o.hookRefusal == "" {
		o.hookRefusal, o.refusingHook = o.Refusal, h.Info().Name
	}
	o.Matched, o.Refusal, o.Failure = false, "", ""
}

// addValue adds a value. If an earlier hook set the same field, the earlier value stays. For a field with the
// composition rule SmallestWins, the smaller value stays.
func (o *output) addValue(v lifecycle.Value) {
	for i, have := range o.Values {
		if have.Field != v.Field || have.Key != v.Key || have.Scope != v.Scope {
			continue
		}
		if v.Field.Info().Compose == lifecycle.SmallestWins && v.Int < have.Int {
			o.Values[i] = v
		} else if v.String() != have.String() {
			o.Problems = append(o.Problems, lifecycle.Problem{Reason: fmt.Sprintf(
				"hooks %s and %s disagree on %s: %s is used, not %s", have.Why.Hook, v.Why.Hook, v.Field, have, v)})
		}
		return
	}
	o.Values = append(o.Values, v)
}

// minQuota is the smallest quota that the kernel accepts, in µs.
const minQuota = 1000

// scaleQuotas divides quotas by the divisors of hooks, after all values are collected.
func (o *output) scaleQuotas(in *hook.Input) {
	for _, s := range o.Scales {
		if s.Field != lifecycle.CPUQuota {
			o.Problems = append(o.Problems, lifecycle.Problem{Reason: fmt.Sprintf("hook %s scales %s, but hooks can scale only CPU quotas", s.Why.Hook, s.Field)})
			continue
		}
		at := slices.IndexFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == s.Field })
		v := lifecycle.Value{Field: s.Field, Scope: in.Scope()}
		switch {
		case at >= 0:
			v.Int = o.Values[at].Int
			s.Why.Text = "the quota of hook " + o.Values[at].Why.Hook + ", " + s.Why.Text
		case !s.OnlyDecided && in.Pristine != nil:
			v.Int, v.Scaled = in.Pristine.CPU.Quota.V, true
			s.Why.Text = fmt.Sprintf("the requested quota of %d µs, %s", v.Int, s.Why.Text)
		}
		if v.Int <= 0 { // no limit, or nothing to scale
			continue
		}
		v.Int, v.Why = max(s.Divisor.Divide(v.Int), minQuota), s.Why
		if at >= 0 {
			o.Values[at] = v
		} else {
			o.Values = append(o.Values, v)
		}
	}
}

// initialValues has the text that the kernel gives to cgroup files in a new cgroup, by the name of the file.
var initialValues = map[string]string{
	"cpu.bvt_warp_ns": "0", "cpu.idle": "0", "io.weight": "100", "io.bfq.weight": "100",
	hook.ExclusiveFile: "", hook.PartitionFile: "member",
	"cpu.max.burst": "0", "memory.high": "max", "memory.low": "0", "memory.min": "0", "memory.swap.max": "max", "memory.oom.group": "0",
}

// InitialValue returns the text that the kernel gives to a cgroup file in a new cgroup. key is the name of the file.
// known is false if the engine does not know this text.
func InitialValue(key string) (text string, known bool) {
	text, known = initialValues[key]
	return text, known
}

// revert adds a value for each field that hooks decided in the earlier decision (before) and do not decide now
// (values). The added value is the value that the runtime requested, so the container gets it back.
func revert(values, before []lifecycle.Value, pristine *lifecycle.Resources, m *topology.Machine) []lifecycle.Value {
	for _, old := range before {
		if slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == old.Field && v.Key == old.Key }) {
			continue
		}
		v := lifecycle.Value{Field: old.Field, Scope: old.Scope, Key: old.Key, Why: lifecycle.Reason{Text: "as the runtime requested"}}
		asked, _ := pristine.Value(old.Field, old.Key)
		switch old.Field {
		case lifecycle.CPUShares:
			v.Int = cmp.Or(asked.Int, 1024) // CRI-O sends 0 for a value that it did not get
		case lifecycle.CPUQuota, lifecycle.MemoryLimit:
			v.Int = cmp.Or(asked.Int, unlimited)
		case lifecycle.CPUPeriod:
			v.Int = cmp.Or(asked.Int, defaultPeriod)
		case lifecycle.CPUSetMems:
			v.Text = cmp.Or(asked.Text, topology.FormatList(memoryNodes(m)))
		case lifecycle.CPUSetCPUs:
			v.Text = cmp.Or(asked.Text, m.Format(m.Online()))
		case lifecycle.RDTGroup, lifecycle.RDTSchemata, lifecycle.RDTMonitor, lifecycle.CoreSched: // an empty text removes the setting
		case lifecycle.IOLimit:
			v.Int = -1
		case lifecycle.Hugepages:
			v.Int = unlimited
			for _, h := range pristine.Hugepages { // if a page size occurs twice, the last entry counts, as in OCI runtimes
				if h.Size == old.Key {
					v.Int = int64(min(h.Limit, math.MaxInt64))
				}
			}
		case lifecycle.Unified:
			var known bool
			if v.Text, known = initialValues[old.Key]; !known {
				continue
			}
		default: // environment, mounts and devices are fixed at the container's creation
			continue
		}
		values = append(values, v)
	}
	return values
}

// noteManaged adds fields to the container's list Managed: those of the restorableFields that have a value in values,
// the hooks' new proposals. If it adds a field and the container was decided before, the container's record must be
// written again (Stale).
func (c *Container) noteManaged(values []lifecycle.Value) {
	for i := range values {
		f := values[i].Field
		if !slices.Contains(restorableFields, f) || slices.Contains(c.Managed, f) {
			continue
		}
		c.Managed = append(slices.Clone(c.Managed), f)
		c.Stamp.Stale = c.Stamp.Stale || c.Stamp.decidedBefore
	}
	c.Stamp.decidedBefore = true
}

// restorableFields are fields for which a runtime possibly stores the hooks' value and reports it later in place of the
// requested value.
var restorableFields = []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit}

// valuesInCopy finds the managed fields for which the runtime still stores a value that the agent set earlier. For such
// a field, the value in reported, the runtime's copy, differs from the value in pristine, the request. The results have
// no values. If no hook decides such a field now, revert restores the requested value. A zero in reported does not
// count, because a runtime sends zero for an unknown value.
func valuesInCopy(managed []lifecycle.Field, reported, pristine *lifecycle.Resources) []lifecycle.Value {
	var out []lifecycle.Value
	for _, f := range managed {
		has, _ := reported.Value(f, "")
		asked, _ := pristine.Value(f, "")
		if f != lifecycle.CPUShares {
			asked.Int = cmp.Or(asked.Int, unlimited)
		}
		if has.Int != 0 && has.Int != asked.Int {
			out = append(out, lifecycle.Value{Field: f})
		}
	}
	return out
}

// unlimited is the value that means "no limit". Runtimes also treat a missing or zero limit as no limit.
const unlimited int64 = -1
