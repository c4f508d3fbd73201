package engine

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// setFacts sets the pod's spec and the kubelet's grants to the pod's containers in np, the new version of a pod. If the
// event brought no new spec or grants, setFacts copies them from old, the earlier version of the pod. setFacts ignores
// a spec or grants with the name of another pod. For such a spec, it also adds a problem.
func (d *draft) setFacts(np, old *Pod) {
	np.Spec, np.Granted = cmp.Or(d.facts.Specs[np.Pod.UID], old.Spec), cmp.Or(d.facts.Granted[np.Pod.UID], old.Granted)
	if s := np.Spec; s != nil && (s.UID != np.Pod.UID || s.Namespace != np.Pod.Namespace || s.Name != np.Pod.Name) {
		np.Spec = nil
		np.specProblems = []lifecycle.Problem{{
			Key: string(s.From), Value: intent.Printable(s.Namespace + "/" + s.Name), Warning: true,
			Reason: "this spec has the pod's UID but another name, so the agent ignores the spec",
		}}
	}
	if g := np.Granted; g != nil && (g.UID != np.Pod.UID || g.Namespace != np.Pod.Namespace || g.Name != np.Pod.Name) {
		np.Granted = nil
	}
}

// decidePod runs the hooks for the pod's own values.
func (d *draft) decidePod(p *Pod) {
	p.burstSum, p.exclusiveCPUs = d.n.sumBursts(p), d.n.exclusiveCPUs(p)
	var err error
	if p.assignedCPUs, err = d.n.assignedCPUs(p, placement.Key{PodUID: p.Pod.UID}, nil); err != nil ||
		!d.n.ledger.HasCPUs(p.Pod.UID) && slices.ContainsFunc(d.n.containersOf(p.Pod.ID), (*Container).Alive) {
		p.assignedCPUs = topology.Set{} // the assigned CPUs cannot be granted, or the pod's live containers own none
	}
	values, trouble := d.n.propose(p, nil)
	if p.Values = values; p.Pod.Undescribed != "" {
		// The pod's request is not known, so only a cpuset partition can be decided, if the pod's cgroup is
		// known.
		p.Values = slices.DeleteFunc(values, func(v lifecycle.Value) bool { return !makesPartition(v) || p.Pod.CgroupParent == "" })
		trouble = append(trouble, undescribedProblem(p.Pod.Undescribed))
	}
	p.ProblemSummary = summarize(append(trouble, p.specProblems...), lifecycle.MaxProblems-len(p.Intent.Problems))
}

// informPod decides a pod again after new facts became known, such as the pod's spec. It decides the pod's containers
// again if the facts affect them. A new spec does not change how many CPUs an existing container owns. If nothing
// changes, the plan is empty.
func (d *draft) informPod(pod *lifecycle.Pod) {
	old := d.n.pod(pod.ID)
	if old == nil || old.Stopped {
		return
	}
	n := d.newPod(withClaims(old.Pod, pod))
	n.Values = revert(n.Values, old.Values, PodRequest(n.Pod), d.n.machine)
	d.n.pods[pod.ID], d.plan.Pod = n, n
	if !reflect.DeepEqual(n.Values, old.Values) || !reflect.DeepEqual(n.ProblemSummary.Problems, old.ProblemSummary.Problems) || n.ProblemSummary.More != old.ProblemSummary.More {
		d.plan.ChangedPods = append(d.plan.ChangedPods, pod.ID)
	}
	// The containers are decided again only if one of these inputs of their decisions changed.
	terms := d.n.terms(n)
	granted := (intent.RequestsDevices(pod) || terms.PoolsNearDevices || terms.NoGrantReason != nil) && !reflect.DeepEqual(n.Granted, old.Granted)
	again := !reflect.DeepEqual(n.Intent, old.Intent) || d.n.specChangeMatters(old.Spec, n.Spec) || granted || limitsChanged(old, n)
	for _, id := range d.n.base.containerIDsByPod[pod.ID] {
		c := d.n.container(id)
		if c == nil || !c.Alive() {
			continue
		}
		now := *c
		given := d.facts.Claims[id]
		if given != nil { // the kubelet reported the claims after the container's creation
			now.Claims = given
		}
		now.ClaimDevices = claimDevices(now.Claims, n.Pod)
		if d.reallocate(&now) || again || given != nil || d.facts.ColdStartsOver[id] {
			d.decideContainer(&now, recordFor(d.n.machine, c, d.n.ledger.Ledger), nil)
		}
	}
}
