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

// assigned returns the CPUs that a scheduler assigned to the pod, if key can own them. requested
// are the resources of the container, nil for the pod itself. The error is a sentence for users.
func (n *view) assigned(p *Pod, key placement.Key, requested *lifecycle.Resources) (topology.Set, error) {
	if !p.Intent.CPUs.IsSet() || !n.policy.Place {
		return topology.Set{}, nil
	}
	list := topology.FormatList(p.Intent.CPUs.V)
	cpus, err := n.machine.ParseCPUs(list)
	if all := n.machine.PlacesOf(list); all.Len() == len(p.Intent.CPUs.V) && n.heldBy(p).Contains(all) {
		// They were granted before; some may be offline now.
		if cpus, err = all.And(n.reach(p)), nil; cpus.Empty() {
			err = errors.New("these CPUs, which it owns, are offline")
		}
	}
	if err != nil {
		return topology.Set{}, err
	}
	if g, owns := n.ledger.Of(key); owns && g.CPUs == cpus {
		// The number was checked when they were granted. A later request does not take them
		// from a running container.
		return cpus, n.grantable(p, key, cpus)
	}
	if err := n.terms(p).DecidedElsewhere; err != nil {
		return topology.Set{}, err
	}
	if err := n.policy.Rules.CPUs(p.Pod.Namespace, cpus.Len(), p.payingResources(p.Pod.Resources, requested)); err != nil {
		return topology.Set{}, err
	}
	if both, owner := n.kubeletOwned(p, cpus); !both.Empty() {
		return cpus, fmt.Errorf("CPUs %s were given to %s by the kubelet's static CPU manager", intent.Printable(n.machine.Format(both)), owner)
	}
	return cpus, n.grantable(p, key, cpus)
}

// refusesCPUs reports whether the rules forbid pods of a namespace to own CPUs, whether a
// scheduler, the agent or the kubelet chose the CPUs.
func (n *view) refusesCPUs(namespace string) bool {
	return n.policy.Rules.For(intent.AssignedCPUs, namespace).Decision == intent.Refuse
}

// grantable returns nil if key may own these CPUs, otherwise the reason as a sentence.
func (n *view) grantable(p *Pod, key placement.Key, cpus topology.Set) error {
	pools := &n.policy.Pools
	format := func(s topology.Set) string { return intent.Printable(n.machine.Format(s)) }
	if both := cpus.And(pools.Reserved); !both.Empty() {
		return fmt.Errorf("CPUs %s are reserved by pools.reserved", format(both))
	}
	if out := cpus.Minus(p.Within); !p.Within.Empty() && !out.Empty() {
		return fmt.Errorf("CPUs %s are not allowed in the pod's cgroup", format(out))
	}
	var taken *placement.Taken
	if err := n.ledger.Check(key, cpus); errors.As(err, &taken) {
		return fmt.Errorf("CPUs %s are owned by %s", format(taken.CPUs), taken.Owner.Pod)
	}
	if pools.ForAll().Minus(n.ledger.Held()).Minus(cpus).Empty() {
		return errors.New("no CPU would be left for all other containers")
	}
	return nil
}

// placer places one container: it collects the result and writes owned CPUs into the ledger.
type placer struct {
	n *view
	p *Pod
	c *Container
	// resize is the resize in progress; nil for none.
	resize *resize
	// aligned are the ids of the NUMA nodes that the topology manager chose; nil for none.
	aligned []int
	// scheduling is the scheduling class of its pool; empty for none.
	scheduling lifecycle.SchedulingClass
}

func (d *draft) placer(c *Container, r *resize) placer {
	return placer{n: &d.n, p: d.n.pod(c.PodID), c: c, resize: r}
}

// refused adds a problem for CPUs that a container requested and did not get.
func (s *placer) refused(key, value string, err error) {
	q := lifecycle.Problem{Key: key, Value: value, Reason: err.Error(), Refused: true, Then: "the container runs in a shared pool"}
	if refusal := (*intent.Refusal)(nil); errors.As(err, &refusal) {
		q.Rule = refusal.Rule
	}
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, q)
}

// CreatedAgain ends the reason of a container that runs without the CPUs of its own that its pod asks for.
const CreatedAgain = "it can get them when it is created again"

// place decides which CPUs a container uses: its own, or a pool's.
func (s *placer) place(rec *Record) {
	old := s.n.container(s.c.ID)
	s.c.Unplaced = !s.n.policy.Place && s.c.Stamp.CPUs.Empty() && (old != nil && old.Unplaced || old == nil && (rec == nil || rec.Unplaced))
	if s.placeByKubelet() || s.placeRecorded(rec) {
		return
	}
	isNew := (old == nil || !old.Alive() || old.Assignment.Pool == placement.Own || old.Unplaced) && (rec == nil || rec.CPUs != "" || rec.Unplaced)
	if !isNew && s.placeWaitingOwner() {
		return
	}
	cpus, err := s.n.assigned(s.p, s.c.Key, &s.c.Pristine)
	if !isNew && err == nil && s.p.Intent.CPUs.IsSet() && s.n.policy.Place {
		// The CPUs were refused when the container was created, and its record has that refusal.
		// If it got the CPUs now, the next restart would take them away.
		err = errors.New("they could not be granted when the container was created; " + CreatedAgain)
	}
	switch {
	case err != nil && isNew && s.waitOnCreate():
	case err != nil && !s.c.Stamp.CPUs.Empty() && s.c.Stamp.CPUs.And(s.n.reach(s.p)).Empty():
		if rec == nil { // otherwise the problem is reported already
			s.waitFor(s.p.Intent.CPUs.Key)
		}
	case err != nil:
		s.refused(s.p.Intent.CPUs.Key, intent.Printable(topology.FormatList(s.p.Intent.CPUs.V)), err)
	case !cpus.Empty():
		s.own(cpus, s.p.Intent.CPUs.Key, "assigned by the scheduler")
		return
	case !isNew:
		s.reportRefused()
	case (rec == nil || rec.CPUs == "") && s.placeChosen():
		return
	}
	s.placeInPool(isNew)
}

// placeRecorded gives a container the CPUs in its record, if it can still own them. So a running
// container does not move.
func (s *placer) placeRecorded(rec *Record) bool {
	if rec == nil || rec.CPUs == "" || !s.n.policy.Place || s.n.refusesCPUs(s.p.Pod.Namespace) {
		return false
	}
	from := cmp.Or(s.p.Intent.CPUs.Key, s.p.Intent.Class.Key, intent.KoordResourceStatus)
	cpus := s.n.machine.PlacesOf(rec.CPUs).And(s.n.reach(s.p))
	if cpus.Empty() {
		s.waitFor(from)
		return false
	}
	if s.n.grantable(s.p, s.c.Key, cpus) != nil {
		if cpus.And(s.n.policy.Pools.Reserved).Empty() {
			// Another pod owns them now. If the record kept them, this container would move to
			// them at a restart after they became free. Reserved CPUs stay in the record,
			// because the next configuration may allow them.
			s.c.Stamp.CPUs, s.c.Stamp.Stale = topology.Set{}, true
		}
		return false
	}
	s.own(cpus, from, "owned since it was created")
	owns := s.withOffline(cpus).Len()
	if asks := s.refusedResize(owns); asks != 0 && asks != owns && !s.p.Intent.CPUs.IsSet() && !s.p.Intent.NUMA.V.Exclusive {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, ownsOtherNumber(s.c.Assignment.From, asks, owns))
	}
	return true
}

// reportRefused reports that a container owns no CPUs although it asks for some. A refusal at
// its creation is final.
func (s *placer) reportRefused() {
	switch a, ok := s.n.asks(s.p, s.c.Name, &s.c.Pristine); {
	case !ok:
	case !s.c.Stamp.CPUs.Empty():
		s.waitFor(a.key)
	case a.n == 0:
		s.refused(a.key, "", whyNoCPUs(s.p, s.p.Pod.Resources, &s.c.Pristine))
	default:
		s.refused(a.key, "", errors.New("no CPUs were granted when the container was created; "+CreatedAgain))
	}
}

// placeChosen gives a container CPUs that the agent chooses, if the container should own CPUs. A
// container that owned CPUs before and cannot have the same CPUs gets none, because its record
// has the old CPUs.
func (s *placer) placeChosen() bool {
	old := s.n.container(s.c.ID)
	switch {
	case s.p.Intent.CPUs.IsSet() || !s.n.policy.Place || !s.n.terms(s.p).Chooses:
		return false
	case old != nil && old.Alive() && old.Assignment.Pool == placement.Own && old.Assignment.From != placement.ByKubelet && s.stays(old):
		cpus := s.n.ownedBy(old).And(s.n.reach(s.p))
		if s.resize != nil {
			if cpus = s.resized(cpus); cpus.Empty() {
				return false
			}
		}
		s.own(cpus, old.Assignment.From, old.Assignment.Why)
		if s.resize == nil || s.resize.failed == nil {
			s.reportResized()
		}
		return true
	case !s.c.Stamp.CPUs.Empty() || s.waitOnCreate():
		return false
	}
	cpus, key, why, err := s.choose()
	switch {
	case key == "" || err == nil && cpus.Empty():
		return false
	case err != nil:
		s.refused(key, "", err)
		return false
	}
	again := s.copyRefusedResize()
	s.own(cpus, key, why)
	if again {
		s.reportResized()
	}
	return true
}

// ownedBy returns the CPUs that the ledger grants to an owner. During a resize the ledger
// changes before the containers do.
func (n *view) ownedBy(c *Container) topology.Set {
	if g, owns := n.ledger.Of(c.Key); owns {
		return g.CPUs
	}
	return c.Assignment.Owned
}

// placeInPool places a container in a pool.
func (s *placer) placeInPool(isNew bool) {
	a := s.choosePool(isNew, topology.Set{})
	s.c.Assignment, s.c.PoolNode = Assignment{a.Group, a.From, a.Why, a.Marks, a.Memory}, a.PoolNode
	s.c.Balloon, s.scheduling = "", a.Scheduling
	if a.Group.Pool.Named() {
		s.c.Balloon = a.Group.Which.Name
	}
	s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, a.Problems...)
	s.c.Assignment.Within = s.n.within(s.p, s.c)
	s.shareExternal()
	if _, ok := s.n.layout(nil).CPUs(s.c.Assignment.CPUGroup); !ok {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: "cpuset.cpus", Value: s.n.machine.Format(s.c.Assignment.Within),
			Reason: "every CPU this container may use is owned by another", Then: "it gets CPUs outside of them",
		})
	}
}

// within returns the CPUs to which a container in a pool is limited by its pod's cgroup and, in
// some cases, by the runtime's request.
func (n *view) within(p *Pod, c *Container) topology.Set {
	if bound := cmp.Or(p.allowedOf(c.Undescribed.bound), c.Undescribed.bound); !bound.Empty() && c.Assignment.Pool == placement.Unclassified {
		return bound
	}
	if c.Pristine.CPU.CPUs == "" {
		return p.Within
	}
	if c.Assignment.Pool != placement.Unclassified {
		// The kubelet's list for a container has the CPUs that no container owns. Pools are
		// limited to that list, too.
		if others, _ := n.kubeletOwned(p, n.machine.Online()); others.Empty() {
			return p.Within
		}
	}
	return p.allowedOf(n.machine.OnlineOf(c.Pristine.CPU.CPUs))
}

// allowedOf returns the CPUs that the pod's cgroup allows.
func (p *Pod) allowedOf(cpus topology.Set) topology.Set {
	if p.Within.Empty() {
		return cpus
	}
	return cpus.And(p.Within)
}

func (s *placer) own(cpus topology.Set, from, why string) {
	s.ownNotExternal(cpus)
	s.c.Assignment.CPUGroup = placement.CPUGroup{Pool: placement.Own, Owned: cpus, Threads: s.n.termsOf(s.p, s.c.Name, &s.c.Pristine).Threads}
	// Owned CPUs that are offline belong to the container again when they come online.
	gone := s.missing().Minus(cpus)
	s.c.Stamp.CPUs = cpus.Union(gone)
	s.c.Assignment.From, s.c.Assignment.Why = from, why
	g := s.n.grantOf(s.p, s.c.Key, cpus, from)
	g.RefusedCPUs = s.c.RefusedCPUs
	s.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
	s.n.reserveCPUs(s.p, s.c.Key, gone, from)
	s.reportAway(from, gone, "it runs on those that are left")
}

// grantOf makes a grant of CPUs to a container of a pod.
func (n *view) grantOf(p *Pod, key placement.Key, cpus topology.Set, from string) placement.Grant {
	t := n.terms(p)
	return placement.Grant{Key: key, Pod: p.FullName(), CPUs: cpus, From: from, Lent: t.Lent, ExclusiveNodes: t.ExclusiveNodes}
}
