package engine

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// burstFile is the cgroup file of the CPU burst. The kernel refuses a burst that is larger than the CPU quota, and a
// quota that is smaller than the burst.
const burstFile = "cpu.max.burst"

// limitBurst lowers the proposed burst of a container to the container's CPU quota: the quota that a hook proposes, or
// else the requested quota. If the container has no quota, limitBurst removes the burst.
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
		v.Text, v.Why.Text = strconv.FormatInt(quota, 10), v.Why.Text+fmt.Sprintf(", limited to the CPU quota; %d µs were requested", asked)
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
				burst, _ := strconv.ParseInt(v.Text, 10, 64) // a hook server may have sent a text that is not a number
				sum += max(burst, 0)
			}
		}
	}
	return sum
}

// recomputePod decides the values of a pod's own cgroup again, if the pod's exclusive CPUs or the sum of its
// containers' bursts changed. So the pod's burst is always at least the sum of its containers' bursts. And if the
// containers' bursts shrink, the pod's burst shrinks before the kubelet lowers the pod's quota, which must not be less
// than the burst.
func (d *draft) recomputePod(podID string) {
	if p := d.n.pod(podID); p != nil && !p.Stopped && (d.n.exclusiveCPUs(p) != p.exclusiveCPUs || d.n.sumBursts(p) != p.burstSum) {
		d.decidePodAgain(p, p.Values)
	}
}

// limitsChanged reports whether the CPU limits in a pod's spec changed. It returns false for a pod that requests no CPU
// burst.
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
