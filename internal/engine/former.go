package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// FormerKey is the key in the problem of a container that does not keep the CPUs that another agent gave it.
const FormerKey = "adopt"

// restoreFromFormerAgent restores a container without a record, to which another resource agent gave CPUs before
// Trimtab managed the node. The container owns these CPUs if the other agent gave them exclusively, the container runs
// on them, and the policy lets the container own them. If the container cannot keep CPUs that it should own, a problem
// says why, and the container is decided like a new one.
func (b *recovery) restoreFromFormerAgent(f lifecycle.FormerContainer) *Record {
	m, c := b.n.machine, b.c
	if f.CPUs == "" {
		return b.adopt()
	}
	gave, whole := m.OnlineOf(f.CPUs), b.p.allowedOf(m.Online())
	if m.OnlineOf(c.Pristine.CPU.CPUs) == gave {
		c.Pristine.CPU.CPUs = "" // the other agent wrote this list; the kubelet did not request it
	}
	has := whole
	if list, read := b.facts.KernelCPUs[c.ID]; read && list != "" {
		has = m.OnlineOf(list)
	} else if !read { // the container has no cgroup yet; it will start on the CPUs that the other agent set in the runtime
		has = gave
	}
	if b.n.terms(b.p).ChoosesCPUsOrMemory {
		c.Mems = c.Pristine.CPU.Mems // the pages of the container are on these nodes
	}
	c.decision.cpusetLimited = has != whole
	c.Stamp.Stale = true // the container needs a record, because the other agent's files may be gone at the next start
	if has != gave {
		b.reportFormerCPUsNotKept(f, fmt.Errorf("the container runs on CPUs %s, not %s", m.Format(has), intent.Printable(f.CPUs)))
		return nil
	}
	asked := b.p.withOriginalQuota(&c.Pristine)
	switch err := b.checkMayOwn(gave, &asked); {
	case !f.Exclusive || b.n.terms(b.p).NoGrantReason != nil:
		if e := b.n.undecidedMembers[c.ID]; e != nil {
			c.Balloon = e.Assignment.PoolID.Name
		}
		return nil
	case err != nil:
		b.reportFormerCPUsNotKept(f, err)
		return nil
	}
	c.Stamp.CPUs, c.Pristine = gave, asked
	return &Record{RecordFields: lifecycle.RecordFields{Pristine: asked}, CPUs: m.Format(gave)}
}

// ownedUnderFormerAgent reports whether the former agent gave a container CPUs exclusively, and the container runs on
// these CPUs or has no cgroup yet.
func (b *recovery) ownedUnderFormerAgent(id string) bool {
	f, m := b.facts.FormerAgent[id], b.n.machine
	list, read := b.facts.KernelCPUs[id]
	return f.Exclusive && (!read || m.OnlineOf(list) == m.OnlineOf(f.CPUs))
}

// checkMayOwn returns nil if the agent's policy lets the container own the given CPUs. Otherwise the error says why
// not, as a clause.
func (b *recovery) checkMayOwn(cpus topology.Set, asked *lifecycle.Resources) error {
	if !b.n.policy.PlacementOn {
		return errors.New("placement is off, so no container owns CPUs")
	}
	if b.p.Intent.CPUs.IsSet() {
		assigned, err := b.n.assignedCPUs(b.p, b.c.Key, asked)
		if err == nil && assigned != cpus {
			err = fmt.Errorf("a scheduler assigned CPUs %s to the container's pod", b.n.machine.Format(assigned))
		}
		return err
	}
	a, asks := b.n.requestedCPUs(b.p, b.containerName(), asked)
	switch {
	case !asks:
		return errors.New("under the agent's configuration the container owns no CPUs")
	case a.count == 0:
		return noCPUsReason(b.p, b.p.Pod.Resources, asked)
	case b.n.refusesCPUs(b.p.Pod.Namespace):
		return errors.New("the authorization rules forbid pods of the container's namespace to own CPUs")
	case !slices.Contains(b.possibleCPUCounts(asked), cpus.Len()) && !b.areWholeNodes(cpus):
		return fmt.Errorf("the container has %d CPUs and may own %d", cpus.Len(), a.count)
	}
	return b.n.checkGrantable(b.p, b.c.Key, cpus)
}

// areWholeNodes reports whether the pod requests whole NUMA nodes, and the given CPUs are all usable CPUs of one or
// more nodes. Offline CPUs and CPUs in pools.reserved are not usable.
func (b *recovery) areWholeNodes(cpus topology.Set) bool {
	all := b.n.machine.ExpandToGroups(topology.NodeLevel, cpus).And(b.n.machine.Online()).Minus(b.n.policy.Pools.Reserved)
	return b.p.Intent.NUMA.V.Exclusive && cpus.Contains(all)
}

// reportFormerCPUsNotKept adds a problem: the container does not keep the CPUs that the former agent gave it.
func (b *recovery) reportFormerCPUsNotKept(f lifecycle.FormerContainer, reason error) {
	b.c.decision.priorProblems = append(slices.Clip(b.c.decision.priorProblems), lifecycle.Problem{
		Key: FormerKey, Value: intent.Printable(f.CPUs), Warning: true, Reason: reason.Error(), Then: "the agent treats the container as a new one (source of these CPUs: " + intent.Printable(f.Where) + ")",
	})
}

// SynchronizeEvent returns a Synchronize event that lists the live pods and containers of the state.
func (s *State) SynchronizeEvent() *lifecycle.Event {
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, id := range s.Pods() {
		if p := s.pods[id]; !p.Stopped {
			ev.Pods = append(ev.Pods, p.Pod)
		}
	}
	for _, id := range s.Containers() {
		c := s.containers[id]
		if p := s.pods[c.PodID]; p == nil || p.Stopped || !c.Alive() {
			continue
		}
		ev.Containers = append(ev.Containers, &lifecycle.Container{
			ID: c.ID, PodID: c.PodID, Name: c.Name, State: c.Life, CgroupsPath: c.CgroupsPath, Labels: c.Properties.Labels, Annotations: c.Properties.Annotations,
			Resources: c.Pristine, CDIDevices: c.RequestedDevices.CDI, Devices: c.RequestedDevices.Nodes, Undescribed: c.Undescribed.Why,
		})
	}
	return ev
}
