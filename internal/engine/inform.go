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

// setFacts sets a pod's spec and the kubelet's grants to its containers. Facts that were
// gathered now replace known facts. It ignores facts of another pod, and reports a spec of
// another pod.
func (d *draft) setFacts(np, old *Pod) {
	np.Spec, np.Granted = cmp.Or(d.facts.Specs[np.Pod.UID], old.Spec), cmp.Or(d.facts.Granted[np.Pod.UID], old.Granted)
	if s := np.Spec; s != nil && (s.UID != np.Pod.UID || s.Namespace != np.Pod.Namespace || s.Name != np.Pod.Name) {
		np.Spec = nil
		np.specProblems = []lifecycle.Problem{{
			Key: string(s.From), Value: intent.Printable(s.Namespace + "/" + s.Name), Warning: true,
			Reason: "this spec has the pod's UID but another name, so the spec is ignored",
		}}
	}
	if g := np.Granted; g != nil && (g.UID != np.Pod.UID || g.Namespace != np.Pod.Namespace || g.Name != np.Pod.Name) {
		np.Granted = nil
	}
}

// decidePod asks the hooks for the pod's own values.
func (d *draft) decidePod(p *Pod) {
	p.bursts, p.exclusive = d.n.bursts(p), d.n.exclusiveCPUs(p)
	var err error
	if p.assigned, err = d.n.assigned(p, placement.Key{PodUID: p.Pod.UID}, nil); err != nil ||
		!d.n.ledger.Owns(p.Pod.UID) && slices.ContainsFunc(d.n.containersOf(p.Pod.ID), (*Container).Alive) {
		p.assigned = topology.Set{} // no live container has bursts
	}
	values, trouble := d.n.propose(p, nil)
	if p.Values = values; p.Pod.Undescribed != "" {
		// The pod's request is not known. The pod can still have exclusive CPUs, if its cgroup
		// is known.
		p.Values = slices.DeleteFunc(values, func(v lifecycle.Value) bool { return !makesPartition(v) || p.Pod.CgroupParent == "" })
		trouble = append(trouble, undescribedProblem(p.Pod.Undescribed))
	}
	p.ProblemSummary = summarize(append(trouble, p.specProblems...), lifecycle.MaxProblems-len(p.Intent.Problems))
}

// inform decides a pod again after its spec became known, and decides the containers again that
// the spec affects. No decision about CPUs depends on the spec. A spec that changes nothing
// leaves an empty plan.
func (d *draft) inform(pod *lifecycle.Pod) {
	old := d.n.pod(pod.ID)
	if old == nil || old.Stopped {
		return
	}
	n := d.newPod(old.Pod)
	n.Values = revert(n.Values, old.Values, PodPristine(n.Pod), d.n.machine)
	d.n.pods[pod.ID], d.plan.Pod = n, n
	if !reflect.DeepEqual(n.Values, old.Values) || !reflect.DeepEqual(n.ProblemSummary.Problems, old.ProblemSummary.Problems) || n.ProblemSummary.More != old.ProblemSummary.More {
		d.plan.ChangedPods = append(d.plan.ChangedPods, pod.ID)
	}
	// If nothing below changed, the spec affects only CPUs that are chosen later.
	granted := (intent.AsksDevices(pod) || d.n.terms(n).DecidedElsewhere != nil) && !reflect.DeepEqual(n.Granted, old.Granted)
	again := !reflect.DeepEqual(n.Intent, old.Intent) || d.n.specMatters(old.Spec, n.Spec) || granted || limitsChanged(old, n)
	for _, id := range d.n.base.byPod[pod.ID] {
		c := d.n.container(id)
		if c == nil || !c.Alive() {
			continue
		}
		now := *c
		if d.reallocate(&now) || again {
			d.decideContainer(&now, recordFor(d.n.machine, c, d.n.ledger.Ledger), nil)
		}
	}
}
