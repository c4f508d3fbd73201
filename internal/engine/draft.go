package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// draft is a plan in progress: the changes of one event, and the facts gathered for it.
type draft struct {
	n     view  // the state with the draft's changes
	plan  *Plan // the result, which the decision fills in
	facts Facts // the facts about the node that were gathered for the event
	// endedPodID is the id of the sandbox that the runtime has removed in this event; "" for none.
	endedPodID string
	// expectedChanges has the draft's changes to State.expectedContainers, by container key. The value is nil if the
	// container is no longer expected.
	expectedChanges map[placement.Key]*expectedContainer
	// devices are the node's CDI devices with their owners, as the decision about the event's container must count
	// them; nil until the decision needs them.
	devices *nodeDevices
	// removesAllExpected means that this event removes all containers from State.expectedContainers.
	removesAllExpected bool
}

// view is a state with the changes of a draft. It never writes to the base state.
type view struct {
	base        *State
	ignoresBase bool // a Synchronize ignores the pods, containers and grants of base
	policy      *Policy
	machine     *topology.Machine
	ledger      draftLedger
	// layoutCache is the layout of the pools that was computed last; nil if none was computed. Each new layout is
	// computed from a previous layout, so that pools keep their CPUs where possible. The previous layout is baseLayout,
	// or the layout of the base state if baseLayout is nil. In a Synchronize, the previous layout is stepLayout, the
	// layout for the containers decided so far, unless containers now own other CPUs.
	layoutCache, baseLayout, stepLayout *placement.Layout
	// poolNeeds are the sums of the containers' CPU requests, by pool, with the changes of the draft. If needsCounted
	// is not set, poolNeeds is not computed, and the sums of the base state are valid. (A Synchronize always uses
	// poolNeeds.)
	poolNeeds    placement.Needs
	needsCounted bool
	pods         map[string]*Pod // by sandbox id: the new versions of pods that changed, and nil for removed pods
	// containers has the new versions of containers that changed, and nil for removed containers. changeOrder has
	// the ids in the order in which they changed. containerIDsByPod has the ids by sandbox.
	containers        map[string]*Container
	changeOrder       []string
	containerIDsByPod map[string][]string
	// memberships has, for each membership, the number of its containers in this view minus the number in the base
	// state.
	memberships map[placement.Membership]int
	// affinityCounts has the counts of those affinities that the draft has needed so far, by the id of the affinity.
	// The counts include the changes of the draft.
	affinityCounts map[string]*scopeCount
	// hookFailure is the error of a hook that failed, if failurePolicy.hooks refuses containers because of it;
	// otherwise "".
	hookFailure string
	// matchedIDs has, for each hook with a condition, the ids of new pods and containers that meet the condition; nil
	// for none.
	matchedIDs map[string]map[string]bool
	// undecidedMembers has, by id, containers of a Synchronize that are not decided yet and whose balloon is known.
	// Such a container counts for the needs of its balloon until it is decided.
	undecidedMembers map[string]*Container
	// listedContainers has the containers that the runtime lists in a Synchronize, by sandbox.
	listedContainers map[string][]*lifecycle.Container
}

// newDraft returns a draft without changes, for one event on a state.
func newDraft(s *State, f Facts) *draft {
	d := &draft{plan: &Plan{baseGeneration: s.Generation}, facts: f, n: view{
		base: s, policy: &s.Policy, machine: s.Machine, ledger: draftLedger{Ledger: s.ledger},
		pods: map[string]*Pod{}, containers: map[string]*Container{}, containerIDsByPod: map[string][]string{},
	}}
	d.plan.draft = d
	return d
}

// pod returns a pod by sandbox id; nil if it is unknown or removed.
func (n *view) pod(id string) *Pod {
	if p, ok := n.pods[id]; ok || n.ignoresBase {
		return p
	}
	return n.base.pods[id]
}

// container returns a container by id; nil if it is unknown or removed.
func (n *view) container(id string) *Container {
	if c, ok := n.containers[id]; ok || n.ignoresBase {
		return c
	}
	return n.base.containers[id]
}

// put replaces, adds or (if c is nil) removes a container in the view, and updates all counts of the view.
func (n *view) put(id string, c *Container) {
	if _, twice := n.containers[id]; !twice {
		if n.changeOrder = append(n.changeOrder, id); c != nil {
			n.containerIDsByPod[c.PodID] = append(n.containerIDsByPod[c.PodID], id)
		}
	}
	n.recountMemberships(n.container(id), -1)
	n.recountMemberships(c, 1)
	n.recountScopes(id, c)
	n.countNeed(id, c)
	n.containers[id] = c
}

// containersOf returns a pod's containers in the order of their creation.
func (n *view) containersOf(podID string) []*Container {
	var out []*Container
	for _, ids := range [][]string{n.base.containerIDsByPod[podID], n.containerIDsByPod[podID]} {
		for _, id := range ids {
			if c := n.container(id); c != nil && c.PodID == podID && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// changedContainers returns the containers that changed, or all containers if all is set.
func (n *view) changedContainers(all bool) []*Container {
	var out []*Container
	if all && !n.ignoresBase {
		for id, c := range n.base.containers {
			if _, changed := n.containers[id]; !changed {
				out = append(out, c)
			}
		}
	}
	for _, c := range n.containers {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// firstOf returns the first element that meets a condition, or the zero value.
func firstOf[T any](all []T, meets func(T) bool) (none T) {
	if i := slices.IndexFunc(all, meets); i >= 0 {
		return all[i]
	}
	return none
}

// groupChanges returns the CPU groups of the base state whose CPUs changed, with the containers that are still in these
// groups.
func (n *view) groupChanges() []GroupChange {
	layout := n.layout(nil)
	if !n.ledger.grantsChanged && layout == n.base.layout || n.ignoresBase {
		return nil
	}
	var out []GroupChange
	for b := range n.base.groupsSince(layout) {
		after, ok := layout.CPUs(b.group)
		if after == b.cpus {
			continue
		}
		members := slices.Clone(b.members)
		for _, id := range n.changeOrder {
			c := n.containers[id]
			if i, isMember := slices.BinarySearch(members, id); isMember && (c == nil || c.Assignment.CPUGroup != b.group || !c.Alive()) {
				members = slices.Delete(members, i, i+1)
			}
		}
		if len(members) > 0 {
			out = append(out, GroupChange{Group: b.group, Before: b.cpus, After: after, Members: members, UsesFallbackCPUs: !ok})
		}
	}
	slices.SortFunc(out, func(a, b GroupChange) int { return slices.Compare(a.Members, b.Members) })
	return out
}

// draftLedger is the ledger of a draft. It copies the state's ledger before the first change.
type draftLedger struct {
	*placement.Ledger

	isCopy bool
	// grantsChanged means that the owned, lent or reserved CPUs have changed.
	grantsChanged bool
	// devicesChanged means that a container got or lost CDI devices of its own.
	devicesChanged bool
}

// write calls change with the draft's copy of the ledger, and notes whether the owned, lent or reserved CPUs changed.
func (b *draftLedger) write(change func(*placement.Ledger)) {
	held, owned, lent := b.OwnedOrReservedCPUs(), b.OwnedCPUs(), b.LentCPUs()
	if !b.isCopy {
		b.Ledger, b.isCopy = b.Clone(), true
	}
	change(b.Ledger)
	b.grantsChanged = b.grantsChanged || b.OwnedOrReservedCPUs() != held || b.OwnedCPUs() != owned || b.LentCPUs() != lent
}

// dropKey removes the CPU grant and the CPU reservation of one container key.
func (b *draftLedger) dropKey(key placement.Key) {
	if _, owns := b.GrantOf(key); owns || !b.ReservedCPUs(key).Empty() {
		b.write(func(l *placement.Ledger) { l.Drop(key) })
	}
}

// valuesCapacity is the initial capacity of a list of values. Most containers have at most this number of values.
const valuesCapacity = 4

// propose runs the hooks for a container, or for the pod if c is nil. It returns the proposed values and the problems.
// If a hook panics, only the proposals of this hook are lost.
func (n *view) propose(p *Pod, c *Container) ([]lifecycle.Value, []lifecycle.Problem) {
	out := output{n: n, p: p, c: c}
	in := out.input()
	out.Values = make([]lifecycle.Value, 0, valuesCapacity)
	run := func(final bool) {
		for _, h := range n.policy.Hooks {
			if _, last := h.(hook.AfterOthersHook); last == final {
				out.runHook(h, in)
			}
		}
	}
	run(false)
	out.scaleQuotas(in)
	out.limitBurst(in)
	if c != nil {
		out.Values = out.applyHookServerValues(out.Values)
	}
	run(true)
	if c != nil {
		if c.decision.hookRefusal = out.hookRefusal; out.hookRefusal != "" {
			out.Problems = append(out.Problems, hookRefusalProblem(out.refusingHook, out.hookRefusal))
		}
	}
	if c != nil && c.Undescribed.NoRequest {
		// The request of the container is not known, so only its CPUs can be decided.
		out.Values = slices.DeleteFunc(out.Values, func(v lifecycle.Value) bool { return v.Field != lifecycle.CPUSetCPUs })
	}
	n.hookFailure = cmp.Or(n.hookFailure, out.hookFailure)
	if c != nil && in.Creation != nil {
		c.CPUEnv, c.SkippedInterfaces = out.CPUEnv, out.SkippedInterfaces
	}
	return out.Values, out.Problems
}
