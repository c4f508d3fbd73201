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

// input is what hooks see of a container, or of the pod where c is nil.
func (o *output) input() *hook.Input {
	in := &hook.Input{Pod: o.p.Pod, Intent: o.p.Intent, Spec: o.p.Spec}
	if o.c == nil {
		in.Pristine, in.Bursts, in.Alone = o.p.Pod.Resources, o.p.bursts, o.n.machine.Format(o.p.alone)
		if !o.p.assigned.Empty() {
			in.Pool, in.SeatFrom = placement.Own, o.p.Intent.CPUs.Key
		} else if !o.n.ledger.OfPod(o.p.Pod.UID).Empty() && o.n.chosenForPod(o.p) {
			in.Pool, in.SeatFrom = placement.Own, o.p.Intent.Class.Key
		}
		return in
	}
	in.Container, in.Pristine = o.c.Name, &o.c.Pristine
	in.Pool, in.SeatFrom, in.SeatWhy = o.c.Seat.Pool, o.c.Seat.From, o.c.Seat.Why
	in.CPUs, in.Mems = o.n.seatText(o.c.Seat.Seat), o.c.Mems
	if o.c.Seat.From == placement.ByKubelet {
		in.Pool, in.Mems = placement.Rest, ""
		if o.c.Seat.Owned == o.n.machine.OnlineOf(o.c.Pristine.CPU.CPUs) {
			in.CPUs = "" // the kubelet wrote them itself
		}
	}
	in.Granted, in.Arrived = o.p.Granted.Of(o.c.Name), o.c.Arrived
	in.Creation, in.Exports = o.creation(), o.c.Exports
	return in
}

// creation adds to what was told of a new container what was decided for it and
// its pod; nil for one that was known before.
func (o *output) creation() *hook.Creation {
	if o.c.decided.creation == nil {
		return nil
	}
	now := *o.c.decided.creation
	if now.PodValues = o.p.Values; o.c.Seat.Pool == placement.Own {
		now.Owned = o.n.machine.Format(o.c.Seat.Owned)
	}
	cpus, _ := o.n.layout(o.c).CPUs(o.c.Seat.Seat) // a pool is as large as its containers ask for, this one too
	now.CPUs = cpus.Len()
	return &now
}

// seatText is the seat's CPUs as a kernel list, from the group where that
// still holds.
func (n *view) seatText(seat placement.Seat) string {
	if b := n.base.groups[seat]; b != nil && !n.ledger.moved && !n.fresh {
		return b.text
	}
	cpus, _ := n.layout(nil).CPUs(seat)
	return n.machine.Format(cpus)
}

// output collects proposals by the fields' composition rules.
type output struct {
	hook.Output

	n      *view
	p      *Pod
	c      *Container
	failed string
}

// run asks one hook. Its panic is contained: it proposes nothing then, and
// that is reported.
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
	o.Values = o.Values[:had] // add never gets ahead of what is read
	for _, v := range proposed {
		o.add(v)
	}
	for i := trouble; i < len(o.Problems); i++ {
		o.Problems[i].Hook = h.Info().Name
	}
}

// add keeps a value unless an earlier hook set the same thing otherwise.
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

// minQuota is the least quota the kernel takes, in µs.
const minQuota = 1000

// scale applies what hooks want scaled, once all values are set.
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

// neutral are the values of cgroup files when nobody asks for anything.
var neutral = map[string]string{
	"cpu.bvt_warp_ns": "0", "cpu.idle": "0", "io.weight": "100", "io.bfq.weight": "100",
	hook.ExclusiveFile: "", hook.PartitionFile: "member",
	"cpu.max.burst": "0", "memory.high": "max", "memory.low": "0", "memory.min": "0", "memory.oom.group": "0",
}

// Neutral is what a file of a new cgroup says, for files that hooks decide.
func Neutral(key string) (text string, known bool) {
	text, known = neutral[key]
	return text, known
}

// revert adds values that put back what the runtime asked for, for every
// resource that was proposed before and is not any more.
func revert(values, before []lifecycle.Value, pristine *lifecycle.Resources, m *topology.Machine) []lifecycle.Value {
	for _, old := range before {
		if has(values, old.Field, old.Key) {
			continue
		}
		v := lifecycle.Value{Field: old.Field, Scope: old.Scope, Key: old.Key, Why: lifecycle.Reason{Text: "as the runtime asked"}}
		switch old.Field {
		case lifecycle.CPUShares:
			v.Int = int64(cmp.Or(pristine.CPU.Shares.V, 1024)) // CRI-O says 0 for what it was not told
		case lifecycle.CPUQuota:
			v.Int = orUnlimited(pristine.CPU.Quota)
		case lifecycle.MemoryLimit:
			v.Int = orUnlimited(pristine.Memory.Limit)
		case lifecycle.CPUPeriod:
			v.Int = int64(cmp.Or(pristine.CPU.Period.V, 100000))
		case lifecycle.CPUSetMems:
			if v.Text = pristine.CPU.Mems; v.Text == "" {
				v.Text = topology.FormatList(memoryNodes(m))
			}
		case lifecycle.CPUSetCPUs:
			if v.Text = pristine.CPU.CPUs; v.Text == "" {
				v.Text = m.Format(m.Online())
			}
		case lifecycle.RDTGroup, lifecycle.RDTSchemata, lifecycle.RDTMonitor, lifecycle.CoreSched: // empty: none of ours
		case lifecycle.IOLimit:
			v.Int = -1
		case lifecycle.Hugepages:
			v.Int = hugepagesOf(pristine, old.Key)
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

// claim notes which resources hooks decide for a container now. A container is
// new to us as long as nothing was proposed for it.
func (c *Container) claim(values []lifecycle.Value) {
	for i := range values {
		f := values[i].Field
		if !givenBack(f) || slices.Contains(c.Ours, f) {
			continue
		}
		c.Ours = append(slices.Clone(c.Ours), f)
		c.Stamp.Stale = c.Stamp.Stale || c.Stamp.made
	}
	c.Stamp.made = true
}

// givenBack lists the resources a runtime's copy may hold of us.
func givenBack(f lifecycle.Field) bool {
	return f == lifecycle.CPUShares || f == lifecycle.CPUQuota || f == lifecycle.MemoryLimit
}

// carried lists what a container that runs already has of us: where the
// runtime's copy of what we ever decided differs from what was asked for.
// Whoever decides nothing for such a field gives it back, though nobody
// remembers what was decided. Zero is what a runtime says of what it does not
// know.
func carried(ours []lifecycle.Field, told, pristine *lifecycle.Resources) []lifecycle.Value {
	var out []lifecycle.Value
	for _, f := range ours {
		var has, asked int64
		switch f {
		case lifecycle.CPUShares:
			has, asked = int64(told.CPU.Shares.V), int64(pristine.CPU.Shares.V)
		case lifecycle.CPUQuota:
			has, asked = told.CPU.Quota.V, orUnlimited(pristine.CPU.Quota)
		case lifecycle.MemoryLimit:
			has, asked = told.Memory.Limit.V, orUnlimited(pristine.Memory.Limit)
		}
		if has != 0 && has != asked {
			out = append(out, lifecycle.Value{Field: f})
		}
	}
	return out
}

// hugepagesOf is the limit of one size as the runtime asked for it.
func hugepagesOf(r *lifecycle.Resources, size string) int64 {
	limit := int64(-1)
	for _, h := range r.Hugepages { // of one told twice the last counts, as in OCI runtimes
		if h.Size == size {
			limit = int64(min(h.Limit, math.MaxInt64))
		}
	}
	return limit
}

func has(values []lifecycle.Value, f lifecycle.Field, key string) bool {
	return slices.ContainsFunc(values, func(v lifecycle.Value) bool { return v.Field == f && v.Key == key })
}

// orUnlimited is a limit as the runtime asked for it; absent and zero mean
// unlimited to every runtime.
func orUnlimited(o lifecycle.Opt[int64]) int64 {
	if o.V == 0 {
		return -1
	}
	return o.V
}
