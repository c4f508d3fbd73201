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
	n     view
	plan  *Plan
	facts Facts
	// ended is the pod that the runtime has removed; "" for none.
	ended string
	// expects are the changes of what is expected; nil for a container that is not expected any more.
	expects map[placement.Key]*expected
	// forgets: all that was expected is forgotten.
	forgets bool
}

// view is a state with changes on top. It never writes to the state below.
type view struct {
	base    *State
	fresh   bool // ignore the content of base
	policy  *Policy
	machine *topology.Machine
	ledger  draftLedger
	// layoutCache is the last layout. before is the one that the next is made from, if it is not
	// that of the state below: step precedes it in a Synchronize, where each step adds to the one
	// before.
	layoutCache, before, step *placement.Layout
	// poolNeeds are the needs of pools with the changes above, if counted is set.
	poolNeeds placement.Needs
	counted   bool
	pods      map[string]*Pod
	// containers has the replaced containers, and nil for removed ones. order is their order of
	// arrival.
	containers map[string]*Container
	order      []string
	byPod      map[string][]string // the same by sandbox
	// marks counts what the changes above add to the marks of the state below, or take from it.
	marks map[placement.Mark]int
	// failed is the error of a hook for which failurePolicy.hooks refuses containers; "" for
	// none.
	failed string
	// matched are the new pods and containers that meet the condition of a hook, by hook and id;
	// nil for none.
	matched map[string]map[string]bool
	// expected are the containers of a Synchronize whose records name a balloon, by id. They
	// count as containers of that balloon until they are decided.
	expected map[string]*Container
	// listed are the containers in a Synchronize, by sandbox.
	listed map[string][]*lifecycle.Container
}

func newDraft(s *State, f Facts) *draft {
	d := &draft{plan: &Plan{base: s.Generation}, facts: f, n: view{
		base: s, policy: &s.Policy, machine: s.Machine, ledger: draftLedger{Ledger: s.ledger},
		pods: map[string]*Pod{}, containers: map[string]*Container{}, byPod: map[string][]string{},
	}}
	d.plan.draft = d
	return d
}

func (n *view) pod(id string) *Pod {
	if p, ok := n.pods[id]; ok || n.fresh {
		return p
	}
	return n.base.pods[id]
}

func (n *view) container(id string) *Container {
	if c, ok := n.containers[id]; ok || n.fresh {
		return c
	}
	return n.base.containers[id]
}

func (n *view) put(id string, c *Container) {
	if _, twice := n.containers[id]; !twice {
		if n.order = append(n.order, id); c != nil {
			n.byPod[c.PodID] = append(n.byPod[c.PodID], id)
		}
	}
	n.recount(n.container(id), -1)
	n.recount(c, 1)
	n.countNeed(id, c)
	n.containers[id] = c
}

// containersOf returns a pod's containers, in the order they came.
func (n *view) containersOf(podID string) []*Container {
	var out []*Container
	for _, ids := range [][]string{n.base.byPod[podID], n.byPod[podID]} {
		for _, id := range ids {
			if c := n.container(id); c != nil && c.PodID == podID && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// changedContainers lists the containers that changed, or all containers.
func (n *view) changedContainers(all bool) []*Container {
	var out []*Container
	if all && !n.fresh {
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

// firstOf returns the first element that meets a condition, or nothing.
func firstOf[T any](all []T, meets func(T) bool) (none T) {
	if i := slices.IndexFunc(all, meets); i >= 0 {
		return all[i]
	}
	return none
}

// groupChanges lists the CPU groups of the base state whose CPUs changed.
func (n *view) groupChanges() []GroupChange {
	layout := n.layout(nil)
	if !n.ledger.moved && layout == n.base.layout || n.fresh {
		return nil
	}
	var out []GroupChange
	for seat, b := range n.base.groupsSince(layout) {
		after, ok := layout.CPUs(seat)
		if after == b.cpus {
			continue
		}
		members := slices.Clone(b.members)
		for _, id := range n.order {
			c := n.containers[id]
			if i, sits := slices.BinarySearch(members, id); sits && (c == nil || c.Assignment.CPUGroup != seat || !c.Alive()) {
				members = slices.Delete(members, i, i+1)
			}
		}
		if len(members) > 0 {
			out = append(out, GroupChange{Group: seat, Before: b.cpus, After: after, Members: members, Starved: !ok})
		}
	}
	slices.SortFunc(out, func(a, b GroupChange) int { return slices.Compare(a.Members, b.Members) })
	return out
}

// draftLedger is the ledger with changes. It copies the state's ledger before the first change.
type draftLedger struct {
	*placement.Ledger

	cloned bool
	moved  bool // owned CPUs or pools have changed
}

// write changes the ledger, and notes whether CPUs have changed owner.
func (b *draftLedger) write(change func(*placement.Ledger)) {
	held, owned, lent := b.Held(), b.Exclusive(), b.Lent()
	if !b.cloned {
		b.Ledger, b.cloned = b.Clone(), true
	}
	change(b.Ledger)
	b.moved = b.moved || b.Held() != held || b.Exclusive() != owned || b.Lent() != lent
}

// dropKey ends one grant.
func (b *draftLedger) dropKey(key placement.Key) {
	if _, owns := b.Of(key); owns || !b.Reserved(key).Empty() {
		b.write(func(l *placement.Ledger) { l.Drop(key) })
	}
}

// usualValues is the usual number of a container's values.
const usualValues = 4

// propose runs the hooks for a container, or for the pod if c is nil. A hook that panics
// proposes nothing; the proposals of other hooks count.
func (n *view) propose(p *Pod, c *Container) ([]lifecycle.Value, []lifecycle.Problem) {
	out := output{n: n, p: p, c: c}
	in := out.input()
	out.Values = make([]lifecycle.Value, 0, usualValues)
	run := func(final bool) {
		for _, h := range n.policy.Hooks {
			if _, last := h.(hook.AfterAll); last == final {
				out.run(h, in)
			}
		}
	}
	run(false)
	out.scale(in)
	out.bound(in)
	if c != nil {
		out.Values = out.applyExternal(out.Values)
	}
	run(true)
	if c != nil {
		if c.decided.refused = out.refused; out.refused != "" {
			out.Problems = append(out.Problems, refusal(out.refusedBy, out.refused))
		}
	}
	if c != nil && c.Undescribed.NoRequest {
		// Memory protection of the pod must not wait until the runtime can describe this
		// container.
		out.Values = slices.DeleteFunc(out.Values, func(v lifecycle.Value) bool { return v.Field != lifecycle.CPUSetCPUs })
	}
	n.failed = cmp.Or(n.failed, out.failed)
	if c != nil && in.Creation != nil {
		c.CPUEnv, c.SkippedInterfaces = out.CPUEnv, out.SkippedInterfaces
	}
	return out.Values, out.Problems
}
