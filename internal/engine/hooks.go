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

// input is what hooks see of a container, or of the pod if c is nil.
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
	in.Container, in.Pristine = o.c.Name, &o.c.Pristine
	in.Pool, in.AssignedBy, in.AssignedWhy = o.c.Assignment.Pool, o.c.Assignment.From, o.c.Assignment.Why
	in.CPUs, in.Mems = o.n.cpuList(o.c.Assignment.CPUGroup), o.c.Mems
	if o.c.Assignment.From == placement.ByKubelet {
		in.Pool, in.Mems = placement.Unclassified, ""
		if o.c.Assignment.Owned == o.n.machine.OnlineOf(o.c.Pristine.CPU.CPUs) {
			in.CPUs = "" // the kubelet wrote them itself
		}
	}
	in.Granted, in.RequestedDevices = o.p.Granted.Of(o.c.Name), o.c.RequestedDevices
	in.CPUEnv = o.c.CPUEnv
	if o.c.decided.creation != nil { // the runtime's request for a new container, with what we decided for it and its pod
		now := *o.c.decided.creation
		if now.PodValues = o.p.Values; o.c.Assignment.Pool == placement.Own {
			now.Owned = o.n.machine.Format(o.c.Assignment.Owned)
		}
		cpus, _ := o.n.layout(o.c).CPUs(o.c.Assignment.CPUGroup) // a pool is as large as its containers' requests, this one's included
		now.CPUs, in.Creation = cpus.Len(), &now
	}
	return in
}

// seatText is the seat's CPUs as a kernel list; it comes from the seat's group if
// the CPUs are still the same.
func (n *view) cpuList(seat placement.CPUGroup) string {
	if b := n.base.groups[seat]; b != nil && !n.ledger.moved && !n.fresh {
		return b.text
	}
	cpus, _ := n.layout(nil).CPUs(seat)
	return n.machine.Format(cpus)
}

// output merges proposals by the fields' composition rules.
type output struct {
	hook.Output

	n      *view
	p      *Pod
	c      *Container
	failed string
}

// run asks one hook. If the hook panics, it proposes nothing, and the panic is
// reported.
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
	proposed := o.Values[had:]
	o.Values = o.Values[:had] // add never overtakes what is read
	for _, v := range proposed {
		o.add(v)
	}
	for i := trouble; i < len(o.Problems); i++ {
		o.Problems[i].Hook = h.Info().Name
	}
}

// add keeps a value unless an earlier hook set the same field to something else.
func (o *output) add(v lifecycle.Value) {
	for i, have := range o.Values {
		if have.Field != v.Field || have.Key != v.Key || have.Scope != v.Scope {
			continue
		}
		if v.Field.Info().Compose == lifecycle.Minimum && v.Int < have.Int {
			o.Values[i] = v
		} else if v.String() != have.String() {
			o.Problems = append(o.Problems, lifecycle.Problem{Reason: fmt.Sprintf(
				"hooks %s and %s disagree on %s: %s stands, not %s", have.Why.Hook, v.Why.Hook, v.Field, have, v)})
		}
		return
	}
	o.Values = append(o.Values, v)
}

// minQuota is the least quota that the kernel accepts, in µs.
const minQuota = 1000

// scale applies the factors of hooks to quotas, once all values are set.
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
		case !s.Set && in.Pristine != nil:
			v.Int, v.Scaled = in.Pristine.CPU.Quota.V, true
			s.Why.Text = fmt.Sprintf("%d as asked, %s", v.Int, s.Why.Text)
		}
		if v.Int <= 0 { // no limit, or nothing to scale
			continue
		}
		v.Int, v.Why = max(s.By.Divide(v.Int), minQuota), s.Why
		if at >= 0 {
			o.Values[at] = v
		} else {
			o.Values = append(o.Values, v)
		}
	}
}

// neutral are the values that cgroup files have while no program sets them.
var neutral = map[string]string{
	"cpu.bvt_warp_ns": "0", "cpu.idle": "0", "io.weight": "100", "io.bfq.weight": "100",
	hook.ExclusiveFile: "", hook.PartitionFile: "member",
	"cpu.max.burst": "0", "memory.high": "max", "memory.low": "0", "memory.min": "0", "memory.oom.group": "0",
}

// Neutral is the value of a file in a new cgroup, for files that hooks decide.
func Neutral(key string) (text string, known bool) {
	text, known = neutral[key]
	return text, known
}

// revert adds values that restore the runtime's request for every resource that was
// proposed before and is no longer.
func revert(values, before []lifecycle.Value, pristine *lifecycle.Resources, m *topology.Machine) []lifecycle.Value {
	for _, old := range before {
		if slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == old.Field && v.Key == old.Key }) {
			continue
		}
		v := lifecycle.Value{Field: old.Field, Scope: old.Scope, Key: old.Key, Why: lifecycle.Reason{Text: "as the runtime asked"}}
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
		case lifecycle.RDTGroup, lifecycle.RDTSchemata, lifecycle.RDTMonitor, lifecycle.CoreSched: // empty: we set none
		case lifecycle.IOLimit:
			v.Int = -1
		case lifecycle.Hugepages:
			v.Int = unlimited
			for _, h := range pristine.Hugepages { // of a size that occurs twice the last counts, as in OCI runtimes
				if h.Size == old.Key {
					v.Int = int64(min(h.Limit, math.MaxInt64))
				}
			}
		case lifecycle.Unified:
			var known bool
			if v.Text, known = neutral[old.Key]; !known {
				continue
			}
		default: // environment, mounts, devices: fixed when the container was created
			continue
		}
		values = append(values, v)
	}
	return values
}

// claim notes which resources hooks decide for a container now. A container is new
// to us until something was proposed for it.
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

// givenBack are the fields of ours that a runtime's copy may hold.
var restorable = []lifecycle.Field{lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.MemoryLimit}

// carried lists the values of ours that a running container has: fields that we may
// decide and whose value in the runtime's copy differs from the request. If nothing
// is decided for such a field now, its request is restored, although no record of
// the decision is left. Zero is what a runtime sends for a value it does not know.
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

// unlimited is a limit that was requested as none or as zero, which mean the same
// to every runtime.
const unlimited int64 = -1
