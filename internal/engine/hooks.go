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

// input is the input of hooks for a container, or for the pod if c is nil.
func (o *output) input() *hook.Input {
	in := &hook.Input{Pod: o.p.Pod, Intent: o.p.Intent, Spec: o.p.Spec}
	if o.c == nil {
		in.Pristine, in.Bursts, in.Exclusive = o.p.Pod.Resources, o.p.bursts, o.n.machine.Format(o.p.exclusive)
		if !o.p.assigned.Empty() {
			in.Pool, in.AssignedBy = placement.Own, o.p.Intent.CPUs.Key
		} else if !o.n.ledger.OfPod(o.p.Pod.UID).Empty() && o.n.chosenForPod(o.p) {
			in.Pool, in.AssignedBy = placement.Own, o.p.Intent.Class.Key
		}
		return in
	}
	in.Container, in.About, in.Pristine = o.c.Name, o.c.About, &o.c.Pristine
	in.Pool, in.AssignedBy, in.AssignedWhy = o.c.Assignment.Pool, o.c.Assignment.From, o.c.Assignment.Why
	in.CPUs, in.Mems = o.n.cpuList(o.c.Assignment.CPUGroup), o.c.Mems
	if o.c.Assignment.From == placement.ByKubelet {
		in.Pool, in.Mems = placement.Unclassified, ""
		if o.c.Assignment.Owned == o.n.machine.OnlineOf(o.c.Pristine.CPU.CPUs) {
			in.CPUs = "" // the kubelet set them itself
		}
	}
	in.Granted, in.RequestedDevices = o.p.Granted.Of(o.c.Name), o.c.RequestedDevices
	in.CPUEnv, in.Scheduling, in.SkippedInterfaces = o.c.CPUEnv, o.c.Scheduling, o.c.SkippedInterfaces
	if o.c.decided.creation != nil { // only a new container has the runtime's request and the decision for itself and its pod
		now := *o.c.decided.creation
		if now.PodValues = o.p.Values; o.c.Assignment.Pool == placement.Own {
			now.Owned = o.n.machine.Format(o.c.Assignment.Owned)
		}
		cpus, _ := o.n.layout(o.c).CPUs(o.c.Assignment.CPUGroup) // a pool is as large as its containers' requests, so this container counts too
		now.CPUs, in.Creation = cpus.Len(), &now
		now.PodInterfaces = o.n.podInterfaces(o.c)
	}
	return in
}

// podInterfaces returns the network interfaces that other containers of a container's pod were
// created with, and whether such a container has not started yet.
func (n *view) podInterfaces(c *Container) (all map[string]bool) {
	for _, other := range n.containersOf(c.PodID) {
		if other.ID == c.ID {
			continue
		}
		for i := range other.decided.proposed {
			if v := &other.decided.proposed[i]; v.Field == lifecycle.NetDevice {
				if all == nil {
					all = map[string]bool{}
				}
				all[v.Key] = all[v.Key] || other.Life == lifecycle.StateCreated
			}
		}
	}
	return all
}

// cpuList returns the CPUs of a group as a kernel list. It reuses the group's text if the CPUs
// have not changed.
func (n *view) cpuList(seat placement.CPUGroup) string {
	if b := n.base.groups[seat]; b != nil && !n.ledger.moved && !n.fresh {
		return b.text
	}
	cpus, _ := n.layout(nil).CPUs(seat)
	return n.machine.Format(cpus)
}

// output merges the proposals of hooks by the composition rules of the fields.
type output struct {
	hook.Output

	n      *view
	p      *Pod
	c      *Container
	failed string
	// refused is the reason why a hook refuses the container. refusedBy is the first hook that
	// refuses it.
	refused, refusedBy string
}

// run asks one hook. A hook that panics proposes nothing, and the panic is reported.
func (o *output) run(h hook.Hook, in *hook.Input) {
	had, scales, trouble := len(o.Values), len(o.Scales), len(o.Problems)
	defer func() {
		if r := recover(); r != nil {
			name := h.Info().Name
			p := lifecycle.Problem{Hook: name, Reason: fmt.Sprintf("hook %s failed and proposes nothing: %v", name, r)}
			o.Values, o.Scales, o.Problems = o.Values[:had], o.Scales[:scales], append(o.Problems[:trouble], p)
			if o.n.policy.Fatal[name] {
				o.failed = p.Reason
			}
		}
	}()
	h.Propose(in, &o.Output)
	o.condition(h)
	proposed := o.Values[had:]
	o.Values = o.Values[:had] // add writes only at positions that were read before
	for _, v := range proposed {
		o.add(v)
	}
	for i := trouble; i < len(o.Problems); i++ {
		o.Problems[i].Hook = h.Info().Name
	}
}

// condition notes the rest of the output of a hook with a condition: matches, failures and
// refusals.
func (o *output) condition(h hook.Hook) {
	if !o.Matched && o.Failed == "" {
		return
	}
	id, isNew := o.p.Pod.ID, o.n.base.pods[o.p.Pod.ID] == nil
	if o.c != nil {
		id, isNew = o.c.ID, o.n.base.containers[o.c.ID] == nil
	}
	o.n.judge(h, &o.Output, id, isNew)
	if o.Refuse != "" && o.refused == "" {
		o.refused, o.refusedBy = o.Refuse, h.Info().Name
	}
	o.Matched, o.Refuse, o.Failed = false, "", ""
}

// add keeps a value unless an earlier hook set the same field to another value.
func (o *output) add(v lifecycle.Value) {
	for i, have := range o.Values {
		if have.Field != v.Field || have.Key != v.Key || have.Scope != v.Scope {
			continue
		}
		if v.Field.Info().Compose == lifecycle.Minimum && v.Int < have.Int {
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

// scale applies the factors of hooks to quotas, when all values are set.
func (o *output) scale(in *hook.Input) {
	for _, s := range o.Scales {
		if s.Field != lifecycle.CPUQuota {
			o.Problems = append(o.Problems, lifecycle.Problem{Reason: fmt.Sprintf("hook %s: %s cannot be scaled", s.Why.Hook, s.Field)})
			continue
		}
		at := slices.IndexFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == s.Field })
		v := lifecycle.Value{Field: s.Field, Scope: in.Scope()}
		switch {
		case at >= 0:
			v.Int = o.Values[at].Int
			s.Why.Text = o.Values[at].Why.Hook + "'s, " + s.Why.Text
		case !s.OnlyDecided && in.Pristine != nil:
			v.Int, v.Scaled = in.Pristine.CPU.Quota.V, true
			s.Why.Text = fmt.Sprintf("%d as asked, %s", v.Int, s.Why.Text)
		}
		if v.Int <= 0 { // no limit, or nothing to scale
			continue
		}
		v.Int, v.Why = max(s.Factor.Divide(v.Int), minQuota), s.Why
		if at >= 0 {
			o.Values[at] = v
		} else {
			o.Values = append(o.Values, v)
		}
	}
}

// neutral has the initial values of cgroup files, which a file has until a program writes it.
var neutral = map[string]string{
	"cpu.bvt_warp_ns": "0", "cpu.idle": "0", "io.weight": "100", "io.bfq.weight": "100",
	hook.ExclusiveFile: "", hook.PartitionFile: "member",
	"cpu.max.burst": "0", "memory.high": "max", "memory.low": "0", "memory.min": "0", "memory.oom.group": "0",
}

// Neutral returns the value of a file in a new cgroup, for files that hooks decide.
func Neutral(key string) (text string, known bool) {
	text, known = neutral[key]
	return text, known
}

// revert restores the runtime's request for each resource that hooks decided earlier and do not
// decide now. It adds the requested values.
func revert(values, before []lifecycle.Value, pristine *lifecycle.Resources, m *topology.Machine) []lifecycle.Value {
	for _, old := range before {
		if slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == old.Field && v.Key == old.Key }) {
			continue
		}
		v := lifecycle.Value{Field: old.Field, Scope: old.Scope, Key: old.Key, Why: lifecycle.Reason{Text: "as the runtime requested"}}
		asked, _ := pristine.Of(old.Field, old.Key)
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
		case lifecycle.RDTGroup, lifecycle.RDTSchemata, lifecycle.RDTMonitor, lifecycle.CoreSched: // empty, since we set none
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
			if v.Text, known = neutral[old.Key]; !known {
				continue
			}
		default: // environment, mounts and devices are fixed at the container's creation
			continue
		}
		values = append(values, v)
	}
	return values
}

// claim notes the resources that hooks decide for a container now.
func (c *Container) claim(values []lifecycle.Value) {
	for i := range values {
		f := values[i].Field
		if !slices.Contains(restorable, f) || slices.Contains(c.Managed, f) {
			continue
		}
		c.Managed = append(slices.Clone(c.Managed), f)
		c.Stamp.Stale = c.Stamp.Stale || c.Stamp.decidedBefore
	}
	c.Stamp.decidedBefore = true
}

// restorable are the fields that hooks decide and that a runtime's copy may contain.
var restorable = []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit}

// valuesInCopy lists our values in the runtime's copy of a running container: those of fields
// that hooks may decide and whose value differs from the request. If no hook decides such a
// field now, its request is restored, even if no record of the decision is left. A runtime
// sends zero for a value that it does not know.
func valuesInCopy(ours []lifecycle.Field, requested, pristine *lifecycle.Resources) []lifecycle.Value {
	var out []lifecycle.Value
	for _, f := range ours {
		has, _ := requested.Of(f, "")
		asked, _ := pristine.Of(f, "")
		if f != lifecycle.CPUShares {
			asked.Int = cmp.Or(asked.Int, unlimited)
		}
		if has.Int != 0 && has.Int != asked.Int {
			out = append(out, lifecycle.Value{Field: f})
		}
	}
	return out
}

// unlimited reports whether a requested limit is missing or zero. Both mean "no limit" to every
// runtime.
const unlimited int64 = -1
