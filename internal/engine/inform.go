package engine

import (
	"reflect"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// takeSpec gives a pod its spec: what was gathered now, else what was known.
// One that is of another pod is reported and left out.
func (d *draft) takeSpec(np *Pod, f Facts) {
	np.Spec = f.Specs[np.Pod.UID]
	if old := d.pod(np.Pod.ID); np.Spec == nil && old != nil {
		np.Spec = old.Spec
	}
	if s := np.Spec; s != nil && (s.UID != np.Pod.UID || s.Namespace != np.Pod.Namespace || s.Name != np.Pod.Name) {
		np.Spec = nil
		np.stranger = []lifecycle.Problem{{
			Key: string(s.From), Value: intent.Printable(s.Namespace + "/" + s.Name), Warning: true,
			Reason: "this spec has the pod's UID and another name: it is not used",
		}}
	}
}

// takeGranted gives a pod what the kubelet granted its containers: as it was
// gathered now, else as it was known. That of another pod counts for nothing.
func (d *draft) takeGranted(np *Pod, f Facts) {
	np.Granted = f.Granted[np.Pod.UID]
	if old := d.pod(np.Pod.ID); np.Granted == nil && old != nil {
		np.Granted = old.Granted
	}
	if g := np.Granted; g != nil && (g.UID != np.Pod.UID || g.Namespace != np.Pod.Namespace || g.Name != np.Pod.Name) {
		np.Granted = nil
	}
}

// decidePod asks the hooks for the pod's own values.
func (d *draft) decidePod(p *Pod) {
	p.bursts, p.alone = d.bursts(p), d.alone(p)
	var err error
	if p.assigned, err = d.assigned(p, placement.Key{PodUID: p.Pod.UID}, nil); err != nil {
		p.assigned = topology.Set{}
	}
	if !d.ledger.Owns(p.Pod.UID) && slices.ContainsFunc(d.containersOf(p.Pod.ID), (*Container).Alive) {
		p.assigned = topology.Set{} // none of those that live has them
	}
	values, trouble := d.propose(p, nil)
	if p.Values = values; p.Pod.Unread != "" {
		p.Values = nil // what was asked for, and where its cgroup is, is not known
		trouble = append(trouble, unread(p.Pod.Unread))
	}
	foundOfPod(p, append(trouble, p.stranger...))
}

// inform decides a pod anew whose spec became known, and those of its
// containers that it concerns. Nobody's CPUs depend on it. A spec that changes
// nothing leaves an empty plan.
func (d *draft) inform(p *Plan, pod *lifecycle.Pod, f Facts) {
	old := d.pod(pod.ID)
	if old == nil || old.Stopped {
		return
	}
	n := d.newPod(old.Pod, f)
	n.Values = revert(n.Values, old.Values, PodPristine(n.Pod), d.machine.Online(), d.machine)
	d.pods[pod.ID], p.Pod = n, n
	if !reflect.DeepEqual(n.Values, old.Values) || !reflect.DeepEqual(n.Trouble, old.Trouble) || n.Untold != old.Untold {
		p.ChangedPods = append(p.ChangedPods, pod.ID)
	}
	// Else it counts for CPUs that are chosen later.
	granted := (intent.AsksDevices(pod) || d.terms(n).Elsewhere != nil) && !reflect.DeepEqual(n.Granted, old.Granted)
	if reflect.DeepEqual(n.Intent, old.Intent) && !granted && !boundAnew(old, n) {
		return // hooks heed nothing else of it in a container
	}
	for _, id := range d.base.byPod[pod.ID] {
		c := d.container(id)
		if c == nil || !c.Alive() {
			continue
		}
		now := *c
		d.settle(p, &now, recordFor(d.machine, c, d.ledger))
	}
	p.Container = nil
}
