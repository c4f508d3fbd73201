package engine

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// assignedCPUs returns the CPUs that a scheduler assigned to the pod. The error, a sentence for users, says why the
// container with the key cannot own these CPUs. requested are the resources of the container; nil for the pod itself.
func (n *view) assignedCPUs(p *Pod, key placement.Key, requested *lifecycle.Resources) (topology.Set, error) {
	if !p.Intent.CPUs.IsSet() || !n.policy.PlacementOn {
		return topology.Set{}, nil
	}
	list := topology.FormatList(p.Intent.CPUs.V)
	cpus, err := n.machine.ParseCPUs(list)
	if all := n.machine.KnownCPUsOf(list); all.Len() == len(p.Intent.CPUs.V) && n.ownedOrReserved(p).Contains(all) {
		// The CPUs were granted before. Some of them may be offline now.
		if cpus, err = all.And(n.usableCPUs(p)), nil; cpus.Empty() {
			err = errors.New("the CPUs that were granted before are offline")
		}
	}
	if err != nil {
		return topology.Set{}, err
	}
	if g, owns := n.ledger.GrantOf(key); owns && g.CPUs == cpus {
		// The number of CPUs was checked when the CPUs were granted. Only a resize can take them from a running
		// container (revokeUnpaid), so the number is not checked again here.
		return cpus, n.checkGrantable(p, key, cpus)
	}
	if err := n.terms(p).NoGrantReason; err != nil {
		return topology.Set{}, err
	}
	if err := n.policy.Rules.CheckCPUs(p.Pod.Namespace, cpus.Len(), p.payingResources(p.Pod.Resources, requested)); err != nil {
		return topology.Set{}, err
	}
	if both, owner := n.externallyOwned(p, cpus); !both.Empty() {
		return cpus, fmt.Errorf("CPUs %s were given to %s by %s", intent.Printable(n.machine.Format(both)), owner, n.policy.externalCPUSource())
	}
	return cpus, n.checkGrantable(p, key, cpus)
}

// refusesCPUs reports whether the authorization rules forbid pods of a namespace to own CPUs. Such a rule applies to
// CPUs that a scheduler, the agent or the kubelet chose.
func (n *view) refusesCPUs(namespace string) bool {
	return n.policy.Rules.For(intent.AssignedCPUs, namespace).Decision == intent.Refuse
}

// checkGrantable returns nil if the container with the given key may own the CPUs. Otherwise the error says why not, as
// a sentence.
func (n *view) checkGrantable(p *Pod, key placement.Key, cpus topology.Set) error {
	pools := &n.policy.Pools
	format := func(s topology.Set) string { return intent.Printable(n.machine.Format(s)) }
	if both := cpus.And(pools.Reserved); !both.Empty() {
		return fmt.Errorf("CPUs %s are reserved by pools.reserved", format(both))
	}
	if out := cpus.Minus(p.AllowedCPUs); !p.AllowedCPUs.Empty() && !out.Empty() {
		return fmt.Errorf("CPUs %s are not allowed in the pod's cgroup", format(out))
	}
	var taken *placement.OwnedError
	if err := n.ledger.Check(key, cpus); errors.As(err, &taken) {
		return fmt.Errorf("CPUs %s are owned by %s", format(taken.CPUs), taken.Owner.Pod)
	}
	if pools.UnclassifiedCPUs().Minus(n.ledger.OwnedOrReservedCPUs()).Minus(cpus).Empty() {
		return errors.New("no CPU would be left for other containers")
	}
	return nil
}

// placer decides the CPUs, memory nodes and devices of the container c of the pod p. It stores the result in c, and
// stores grants in the ledger of the view n.
type placer struct {
	n *view
	d *draft // nil if a recovery uses the placer
	p *Pod
	c *Container
	// resize is the resize in progress; nil for none.
	resize *resize
	// alignedNodes are the ids of the NUMA nodes that the topology manager chose; nil for none.
	alignedNodes []int
	// scheduling is the scheduling class (for the processes' scheduler) that the pool gives to the container; empty for
	// none.
	scheduling lifecycle.SchedulingClass
	// isCreation means that the container is being created, so that it can get memory nodes and CDI devices.
	isCreation bool
}

// placer makes a placer for a container. r is the resize in progress; nil for none.
func (d *draft) placer(c *Container, r *resize) placer {
	return placer{n: &d.n, d: d, p: d.n.pod(c.PodID), c: c, resize: r}
}

// reportCPUsNotGranted adds a problem for CPUs that a container requested and did not get.
func (s *placer) reportCPUsNotGranted(key, value string, err error) {
	q := lifecycle.Problem{Key: key, Value: value, Reason: err.Error(), Refused: true, Then: "the container runs in a shared pool"}
	if refusal := (*intent.Refusal)(nil); errors.As(err, &refusal) {
		q.Rule = refusal.Rule
	}
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, q)
}

// RecreateHint ends the reason of a problem for a container that runs without the CPUs or devices that its
// pod requests.
const RecreateHint = "the container can get them when it is created again"

// place decides which CPUs the container uses: CPUs that it owns, or the CPUs of a pool. rec is the container's record;
// nil for none.
func (s *placer) place(rec *Record) {
	old := s.n.container(s.c.ID)
	s.c.NeverPlaced = !s.n.policy.PlacementOn && s.c.Stamp.CPUs.Empty() && (old != nil && old.NeverPlaced || old == nil && (rec == nil || rec.NeverPlaced))
	if s.placeExternal() || s.placeOnRecordedCPUs(rec) {
		return
	}
	isNew := (old == nil || !old.Alive() || old.Assignment.Pool == placement.Exclusive || old.NeverPlaced) && (rec == nil || rec.CPUs != "" || rec.NeverPlaced)
	if !isNew && s.placeWaitingOwner() {
		return
	}
	cpus, err := s.n.assignedCPUs(s.p, s.c.Key, &s.c.Pristine)
	if !isNew && err == nil && s.p.Intent.CPUs.IsSet() && s.n.policy.PlacementOn {
		// The CPUs were refused when the container was created, so the container's record does not have them. The
		// container must not get the CPUs now, because it would lose them at the next restart of the agent.
		err = errors.New("the agent could not grant the assigned CPUs when the container was created; " + RecreateHint)
	}
	switch {
	case err != nil && isNew && s.reserveUnusableOnCreate():
	case err != nil && !s.c.Stamp.CPUs.Empty() && s.c.Stamp.CPUs.And(s.n.usableCPUs(s.p)).Empty():
		if rec == nil { // with a record, placeOnRecordedCPUs has already called reserveUnusableCPUs
			s.reserveUnusableCPUs(s.p.Intent.CPUs.Key)
		}
	case err != nil:
		s.reportCPUsNotGranted(s.p.Intent.CPUs.Key, intent.Printable(topology.FormatList(s.p.Intent.CPUs.V)), err)
	case !cpus.Empty():
		s.giveCPUs(cpus, s.p.Intent.CPUs.Key, "assigned by the scheduler")
		return
	case !isNew:
		s.reportCPUsRefused()
	case (rec == nil || rec.CPUs == "") && s.placeOnChosenCPUs():
		return
	}
	s.placeInPool(isNew)
}

// placeOnRecordedCPUs gives a container the CPUs in its record, if the policy and other grants still let it own them.
// So a running container keeps its CPUs. placeOnRecordedCPUs reports whether the container got the CPUs.
func (s *placer) placeOnRecordedCPUs(rec *Record) bool {
	if rec == nil || rec.CPUs == "" || !s.n.policy.PlacementOn || s.n.refusesCPUs(s.p.Pod.Namespace) {
		return false
	}
	from := cmp.Or(s.p.Intent.CPUs.Key, s.p.Intent.Class.Key, s.termsNow().Key, intent.KoordResourceStatus)
	cpus := s.n.machine.KnownCPUsOf(rec.CPUs).And(s.n.usableCPUs(s.p))
	if cpus.Empty() {
		s.reserveUnusableCPUs(from)
		return false
	}
	if s.n.checkGrantable(s.p, s.c.Key, cpus) != nil {
		if cpus.And(s.n.policy.Pools.Reserved).Empty() {
			// Another pod owns the CPUs now, so they are removed from the record. Otherwise this container would
			// get them back at a restart after the other pod has ended. CPUs in pools.reserved stay in the record,
			// because the next configuration may allow them.
			s.c.Stamp.CPUs, s.c.Stamp.Stale = topology.Set{}, true
		}
		return false
	}
	s.giveCPUs(cpus, from, "owned since the container was created")
	owns := s.withReservedCPUs(cpus).Len()
	if asks := s.requestedCount(owns); asks != 0 && asks != owns && !s.p.Intent.CPUs.IsSet() && !s.p.Intent.NUMA.V.Exclusive {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, cpuCountProblem(s.c.Assignment.From, asks, owns))
	}
	return true
}

// reportCPUsRefused adds a problem if an existing container requests CPUs of its own and has none. The container gets
// no CPUs now, because a refusal at the creation of a container is final.
func (s *placer) reportCPUsRefused() {
	switch a, ok := s.n.requestedCPUs(s.p, s.c.Name, &s.c.Pristine); {
	case !ok:
	case !s.c.Stamp.CPUs.Empty():
		s.reserveUnusableCPUs(a.key)
	case a.count == 0:
		s.reportCPUsNotGranted(a.key, "", noCPUsReason(s.p, s.p.Pod.Resources, &s.c.Pristine))
	default:
		s.reportCPUsNotGranted(a.key, "", errors.New("the agent granted no CPUs when the container was created; "+RecreateHint))
	}
}

// placeOnChosenCPUs gives a container CPUs that the agent chooses, if the container should own CPUs. It reports whether
// the container got CPUs. A container that owned CPUs before and cannot own the same CPUs now gets no other CPUs,
// because its record has the old CPUs.
func (s *placer) placeOnChosenCPUs() bool {
	old := s.n.container(s.c.ID)
	switch {
	case s.p.Intent.CPUs.IsSet() || !s.n.policy.PlacementOn || !s.n.terms(s.p).ChoosesCPUsOrMemory:
		return false
	case old != nil && old.Alive() && old.Assignment.Pool == placement.Exclusive && !placement.IsExternal(old.Assignment.From) && s.staysOnOwnCPUs(old):
		cpus := s.n.ownedBy(old).And(s.n.usableCPUs(s.p))
		if s.resize != nil {
			if cpus = s.resizedCPUs(cpus); cpus.Empty() {
				return false
			}
		}
		s.giveCPUs(cpus, old.Assignment.From, old.Assignment.Why)
		if s.resize == nil || s.resize.failure == nil {
			s.reportCPUCountDiffers()
		}
		return true
	case !s.c.Stamp.CPUs.Empty() || s.reserveUnusableOnCreate():
		return false
	}
	cpus, key, why, err := s.chooseCPUs()
	switch {
	case key == "" || err == nil && cpus.Empty():
		return false
	case err != nil:
		if unmet := (*placement.RequirementError)(nil); errors.As(err, &unmet) {
			s.c.decision.missingRequirement = unmet.Error()
		}
		s.reportCPUsNotGranted(key, "", err)
		return false
	}
	again := s.setRefusedCPUs()
	s.giveCPUs(cpus, key, why)
	if again {
		s.reportCPUCountDiffers()
	}
	return true
}

// ownedBy returns the CPUs that a container owns. During a resize, the ledger changes before the containers. So if the
// ledger has a grant for the container, ownedBy returns the granted CPUs.
func (n *view) ownedBy(c *Container) topology.Set {
	if g, owns := n.ledger.GrantOf(c.Key); owns {
		return g.CPUs
	}
	return c.Assignment.Owned
}

// placeInPool places a container in a pool. isNew means that no pool was chosen for the container before.
func (s *placer) placeInPool(isNew bool) {
	s.c.Assignment.CPUGroup = placement.CPUGroup{} // the container no longer owns CPUs
	a := s.choosePool(isNew, topology.Set{})
	s.c.Assignment, s.c.PoolNode = Assignment{a.Group, a.From, a.Why, a.Memberships, a.Devices, a.Memory}, a.PoolNode
	s.c.Balloon, s.scheduling = "", a.Scheduling
	if a.Group.Pool.Named() {
		s.c.Balloon = a.Group.PoolID.Name
	}
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, a.Problems...)
	s.c.Assignment.AllowedCPUs = s.n.allowedPoolCPUs(s.p, s.c)
	s.limitToHookServerCPUs()
	if _, ok := s.n.layout(nil).CPUs(s.c.Assignment.CPUGroup); !ok {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: "cpuset.cpus", Value: s.n.machine.Format(s.c.Assignment.AllowedCPUs),
			Reason: "other containers own every CPU that this container may use", Then: "the container gets other CPUs",
		})
	}
}

// setSchedulingClass sets the scheduling class (scheduler and I/O priority of the processes) of a new container. An
// existing container keeps the class with which it was created.
func (s *placer) setSchedulingClass(isNew bool) {
	class := s.scheduling
	if s.n.policy.PlacementOn {
		scheduling, problems := placement.SchedulingOf(s.n.policy.Placement, placement.Subject{Intent: s.p.Intent, Pod: s.p.Pod, Name: s.c.Name})
		if scheduling.Name != "" {
			class = scheduling
		}
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, problems...)
	}
	if isNew {
		s.c.Scheduling = class
	}
}

// allowedPoolCPUs returns the CPUs to which a container in a pool is limited by the cgroup of its pod and, in some
// cases, by the runtime's request. An empty set means no limit.
func (n *view) allowedPoolCPUs(p *Pod, c *Container) topology.Set {
	if bound := cmp.Or(p.allowedOf(c.Undescribed.kernelCPUs), c.Undescribed.kernelCPUs); !bound.Empty() && c.Assignment.Pool == placement.Unclassified {
		return bound
	}
	if c.Pristine.CPU.CPUs == "" || n.policy.ClaimsDecideCPUs() { // the DRA driver changes this cpuset without an event
		return p.AllowedCPUs
	}
	if c.Assignment.Pool != placement.Unclassified {
		// If the kubelet grants exclusive CPUs to some containers, it requests a cpuset with the remaining CPUs for
		// each other container. Such a cpuset limits a container in a pool. If the kubelet granted no CPUs, the
		// requested cpuset does not limit the container.
		if others, _ := n.externallyOwned(p, n.machine.Online()); others.Empty() {
			return p.AllowedCPUs
		}
	}
	return p.allowedOf(n.machine.OnlineOf(c.Pristine.CPU.CPUs))
}

// allowedOf returns those of the CPUs that the pod's cgroup allows.
func (p *Pod) allowedOf(cpus topology.Set) topology.Set {
	if p.AllowedCPUs.Empty() {
		return cpus
	}
	return cpus.And(p.AllowedCPUs)
}

// giveCPUs makes a container own CPUs. from is the annotation or configuration key that requested the CPUs, and why is
// the reason for the choice.
func (s *placer) giveCPUs(cpus topology.Set, from, why string) {
	s.dropHookServerCPUs(cpus)
	t := s.termsNow()
	s.c.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Exclusive, Owned: cpus, Threads: t.Threads}
	// The container owns its offline CPUs again when they come online.
	gone := s.unusableCPUs().Minus(cpus)
	s.c.Stamp.CPUs = cpus.Union(gone)
	s.c.Assignment.From, s.c.Assignment.Why = from, why
	g := s.n.grantOf(s.p, s.c.Key, cpus, from)
	if from == placement.ByClaims {
		g.Claims = t.External.Claims
	}
	g.RefusedCPUs = s.c.RefusedCPUs
	s.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
	s.n.reserveCPUs(s.p, s.c.Key, gone, from)
	s.reportUnusable(from, gone, "the container runs on the CPUs that it can use")
	if !t.SharesFraction {
		s.c.Balloon = ""
		return
	}
	a := s.choosePool(false, topology.Set{})
	s.c.Assignment.PoolID, s.c.Assignment.AllowedCPUs, s.c.Balloon = a.Group.PoolID, s.n.allowedPoolCPUs(s.p, s.c), a.Group.PoolID.Name
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, a.Problems...)
}

// placementReason says, for users, why a container has its CPUs. For a container that owns some CPUs and shares others,
// the text also says which CPUs the container owns.
func (c *Container) placementReason(m *topology.Machine) string {
	if !c.Assignment.OwnsAndShares() {
		return c.Assignment.Why
	}
	return fmt.Sprintf("%s; the container owns CPUs %s, and shares the CPUs of %s for the rest of its request", c.Assignment.Why, m.Format(c.Assignment.Owned), c.Assignment.PoolID.Name)
}

// PlacementReason says, for users, why a container has its CPUs.
func (s *State) PlacementReason(c *Container) string { return c.placementReason(s.Machine) }

// grantOf makes a grant of CPUs to a container of a pod.
func (n *view) grantOf(p *Pod, key placement.Key, cpus topology.Set, from string) placement.Grant {
	t := n.terms(p)
	return placement.Grant{Key: key, Pod: p.FullName(), CPUs: cpus, From: from, Lent: t.Lent, ExclusiveNodes: t.ExclusiveNodes}
}
