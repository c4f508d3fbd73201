package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// draft is a plan in progress: what one event changes, and the facts that were
// gathered for it.
type draft struct {
	n     view
	plan  *Plan
	facts Facts
	// ended is the pod that the runtime has removed; "" for none.
	ended string
}

// view is a state with changes on top. It never writes the state below.
type view struct {
	base    *State
	fresh   bool // ignore what base holds
	policy  *Policy
	machine *topology.Machine
	ledger  draftLedger
	laid    *placement.Layout
	pods    map[string]*Pod
	// containers holds the replaced ones, nil for removed ones; order is the order
	// in which they came.
	containers map[string]*Container
	order      []string
	// failed is why a hook that must not fail failed; "" for none.
	failed string
	// listed are the containers in a Synchronize, by sandbox.
	listed map[string][]*lifecycle.Container
}

func newDraft(s *State, f Facts) *draft {
	d := &draft{plan: &Plan{base: s.Generation}, facts: f, n: view{
		base: s, policy: &s.Policy, machine: s.Machine, ledger: draftLedger{Ledger: s.ledger},
		pods: map[string]*Pod{}, containers: map[string]*Container{},
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
		n.order = append(n.order, id)
	}
	n.containers[id] = c
}

// containersOf returns a pod's containers, in the order they came.
func (n *view) containersOf(podID string) []*Container {
	var out []*Container
	for _, ids := range [][]string{n.base.byPod[podID], n.order} {
		for _, id := range ids {
			if c := n.container(id); c != nil && c.PodID == podID && !slices.Contains(out, c) {
				out = append(out, c)
			}
		}
	}
	return out
}

// everyone lists the containers that changed, or all.
func (n *view) everyone(all bool) []*Container {
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

// seats lists the groups of the base state that have other CPUs now.
func (n *view) seats() []SeatChange {
	layout := n.layout(nil)
	if !n.ledger.moved && layout == n.base.layout || n.fresh {
		return nil
	}
	var out []SeatChange
	for seat, b := range n.base.groups {
		after, ok := layout.CPUs(seat)
		if after == b.cpus {
			continue
		}
		members := slices.Clone(b.members)
		for _, id := range n.order {
			c := n.containers[id]
			if i, sits := slices.BinarySearch(members, id); sits && (c == nil || c.Seat.Seat != seat || !c.Alive()) {
				members = slices.Delete(members, i, i+1)
			}
		}
		if len(members) > 0 {
			out = append(out, SeatChange{Seat: seat, Before: b.cpus, After: after, Members: members, Starved: !ok})
		}
	}
	slices.SortFunc(out, func(a, b SeatChange) int { return slices.Compare(a.Members, b.Members) })
	return out
}

// draftLedger is the ledger of who owns which CPUs, with changes: the state's own is
// copied before the first change.
type draftLedger struct {
	*placement.Ledger

	cloned bool
	moved  bool // the owned CPUs or the pools have changed
}

// write changes the ledger, and notes whether CPUs moved.
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
	if _, owns := b.Of(key); owns || !b.Kept(key).Empty() {
		b.write(func(l *placement.Ledger) { l.Drop(key) })
	}
}

// usualValues is how many values one container has, as a rule.
const usualValues = 4

// propose runs the hooks for one container, or for the pod if c is nil. A hook that
// panics proposes nothing; the others still count.
func (n *view) propose(p *Pod, c *Container) ([]lifecycle.Value, []lifecycle.Problem) {
	out := output{n: n, p: p, c: c}
	in := out.input()
	out.Values = make([]lifecycle.Value, 0, usualValues)
	run := func(final bool) {
		for _, h := range n.policy.Hooks {
			if _, last := h.(hook.Last); last == final {
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
	if c != nil && c.Unread.Unasked {
		// What others were promised does not wait until this container can be read.
		out.Values = slices.DeleteFunc(out.Values, func(v lifecycle.Value) bool { return v.Field != lifecycle.CPUSetCPUs })
	}
	n.failed = cmp.Or(n.failed, out.failed)
	if c != nil && in.Creation != nil {
		c.Exports = out.Exports
	}
	return out.Values, out.Problems
}
