package engine

import (
	"fmt"
	"maps"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// checkLaterContainers refuses the first container of a pod if the topology manager does not admit a later container of
// the pod. Without this check, the pod would start and then fail when the later container is created.
// checkLaterContainers chooses the CPUs and CDI devices of all later containers on a separate draft, and then drops
// this draft. It runs no hooks.
func (d *draft) checkLaterContainers() {
	c, p := d.plan.Container, d.plan.Pod
	t := &d.n.policy.Topology
	if !t.RefuseUnaligned || !t.applies(d.n.machine) || p.Spec == nil || p.Intent.CPUs.IsSet() || p.Intent.NUMA.IsSet() || !d.n.policy.PlacementOn || !d.n.terms(p).ChoosesCPUsOrMemory {
		return
	}
	if own, known := p.Spec.Container(c.Name); !known || !hasQuotaOfSpec(own, &c.Pristine) || d.hasOtherContainers(c) {
		return
	}
	var try *draft
	for _, spec := range p.Spec.Containers {
		if spec.Kind == lifecycle.Ephemeral || spec.Name == c.Name || !p.comesAfter(spec.Name, c.Name) {
			continue
		}
		later := &Container{
			ID: p.Pod.ID + "/" + spec.Name, Name: spec.Name, PodID: p.Pod.ID, Life: lifecycle.StateCreated,
			Key:          placement.Key{PodUID: p.Pod.UID, Container: spec.Name},
			RecordFields: lifecycle.RecordFields{Pristine: spec.Resources()},
		}
		_, asks := d.n.requestedCPUs(p, later.Name, &later.Pristine)
		if !asks && !d.n.policy.ContainerAsksDevices(p.Intent, later.Name) {
			continue
		}
		if try == nil {
			try = d.fork()
		}
		try.devices = nil // the owners in devices are valid for one container only
		s := try.placer(later, nil)
		s.isCreation = true
		if !asks {
			s.chooseDevices() // the containers that come after this one cannot get these devices
			try.n.put(later.ID, later)
			continue
		}
		cpus, key, why, err := s.chooseCPUs()
		if later.decision.unalignedReason != "" {
			d.plan.refusedForContainer = spec.Name
			c.decision.unalignedReason = fmt.Sprintf("%s: %s: container %s, which is created later: %v", topologyKey, t.Policy, intent.Printable(spec.Name), err)
			return
		}
		if err == nil && !cpus.Empty() {
			s.giveCPUs(cpus, key, why)
			s.chooseMemory()
		}
		s.chooseDevices()
		try.n.put(later.ID, later)
	}
}

// hasOtherContainers reports whether the view has a container with another name in the pod of c. Then c is not the
// first container of the pod.
func (d *draft) hasOtherContainers(c *Container) bool {
	for _, other := range d.n.containersOf(c.PodID) {
		if other.ID != c.ID && other.Name != c.Name {
			return true
		}
	}
	return false
}

// hasQuotaOfSpec reports whether a container's request agrees with the CPU limit in the pod's spec: there is no limit,
// or the request has a quota. If the quota is missing, the kubelet enforces no CPU limits (cpuCFSQuota: false) and
// sends no quotas for later containers either. Then the spec does not show what the requests for later containers will
// be.
func hasQuotaOfSpec(spec lifecycle.ContainerSpec, r *lifecycle.Resources) bool {
	return spec.Limits[lifecycle.ResourceCPU] == 0 || r.CPU.Quota.V > 0
}

// fork returns a new draft with the changes of this draft. Later changes of one draft do not affect the other draft.
func (d *draft) fork() *draft {
	f := newDraft(d.n.base, d.facts)
	maps.Copy(f.n.pods, d.n.pods)
	for _, id := range d.n.changeOrder {
		f.n.put(id, d.n.containers[id])
	}
	f.n.ledger.Ledger, f.n.ledger.grantsChanged = d.n.ledger.Ledger, d.n.ledger.grantsChanged
	return f
}
