package engine

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// burstFile is the cgroup file of the CPU burst. The kernel refuses a burst above the quota, and a quota
// below the burst.
const burstFile = "cpu.max.burst"

// limitBurst lowers the proposed burst of a container to its CPU quota: the quota that a hook proposes, or
// else the requested quota. It removes the burst if the container has no quota.
func (o *output) limitBurst(in *hook.Input) {
	at := slices.IndexFunc(o.Values, func(v lifecycle.Value) bool { return v.Field == lifecycle.Unified && v.Key == burstFile })
	if at < 0 {
		return
	}
	quota := int64(-1)
	if in.Pristine != nil {
		quota = in.Pristine.CPU.Quota.V
	}
	for _, v := range o.Values {
		if v.Field == lifecycle.CPUQuota {
			quota = v.Int
		}
	}
	v := &o.Values[at]
	asked, err := strconv.ParseInt(v.Text, 10, 64)
	switch {
	case quota <= 0 || err != nil:
		o.Values = slices.Delete(o.Values, at, at+1)
	case asked > quota:
		v.Text, v.Why.Text = strconv.FormatInt(quota, 10), v.Why.Text+fmt.Sprintf(", limited to its quota; %d was requested", asked)
	}
}

// sumBursts returns the sum of the bursts of a pod's live containers, in µs; 0 if the pod requested no burst.
func (n *view) sumBursts(p *Pod) (sum int64) {
	if !p.Intent.Burst.IsSet() {
		return 0
	}
	for _, c := range n.containersOf(p.Pod.ID) {
		for i := range c.decision.proposed {
			if v := &c.decision.proposed[i]; c.Alive() && v.Field == lifecycle.Unified && v.Key == burstFile {
				burst, _ := strconv.ParseInt(v.Text, 10, 64) // a hook server may have answered something that is not a number
				sum += max(burst, 0)
			}
		}
	}
	return sum
}

// recomputePod decides a pod's own values again if its exclusive CPUs or the sum of its containers' bursts
// changed. So the pod's burst is always at least the sum of its containers' bursts, and it shrinks before the
// kubelet lowers the pod's quota.
func (d *draft) recomputePod(podID string) {
	if p := d.n.pod(podID); p != nil && !p.Stopped && (d.n.exclusiveCPUs(p) != p.exclusiveCPUs || d.n.sumBursts(p) != p.burstSum) {
		d.decidePodAgain(p, p.Values)
	}
}

// limitsChanged reports whether a pod requests bursts and the CPU limits in its spec changed.
func limitsChanged(old, now *Pod) bool {
	if !now.Intent.Burst.IsSet() || now.Spec == old.Spec {
		return false
	}
	for _, s := range []*lifecycle.PodSpec{old.Spec, now.Spec} {
		if s == nil {
			continue
		}
		for _, c := range s.Containers {
			was, _ := old.Spec.Container(c.Name)
			is, _ := now.Spec.Container(c.Name)
			if was.Limits[lifecycle.ResourceCPU] != is.Limits[lifecycle.ResourceCPU] {
				return true
			}
		}
	}
	return false
}
