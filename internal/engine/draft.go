package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// draft is a state with changes on top, while a plan is made. The state below
// is never written.
type draft struct {
	base    *State
	fresh   bool // what base holds does not count
	policy  *Policy
	machine *topology.Machine
	ledger  *placement.Ledger
	cloned  bool
	moved   bool // CPUs were given or taken, or the pools are others
	laid    *placement.Layout
	pods    map[string]*Pod
	// containers holds replaced ones, nil for removed; order is the order in
	// which they came.
	containers map[string]*Container
	order      []string
	// failed is why a hook that must not fail did; "" for none.
	failed string
	// listed are the containers a Synchronize tells of, by sandbox.
	listed map[string][]*lifecycle.Container
	// resizing is the resize under way; nil for none.
	resizing *resize
	// troubles is how many problems of containers are kept, by sandbox, of those pods
	// that were asked for.
	troubles map[string]int
	// ended is the pod that the runtime has removed; "" for none.
	ended string
	// revoked: containers own nothing any more that they do not pay for, and are not
	// seated anew yet.
	revoked bool
}

func newDraft(s *State) *draft {
	return &draft{
		base: s, policy: &s.Policy, machine: s.Machine, ledger: s.ledger,
		pods: map[string]*Pod{}, containers: map[string]*Container{},
	}
}

func (d *draft) pod(id string) *Pod {
	if p, ok := d.pods[id]; ok {
		return p
	}
	if d.fresh {
		return nil
	}
	return d.base.pods[id]
}

func (d *draft) container(id string) *Container {
	if c, ok := d.containers[id]; ok {
		return c
	}
	if d.fresh {
		return nil
	}
	return d.base.containers[id]
}

func (d *draft) put(id string, c *Container) {
	d.recount(d.container(id), c)
	if _, twice := d.containers[id]; !twice {
		d.order = append(d.order, id)
	}
	d.containers[id] = c
}

func (d *draft) write() *placement.Ledger {
	if !d.cloned {
		d.ledger, d.cloned = d.ledger.Clone(), true
	}
	return d.ledger
}

func (d *draft) grant(g placement.Grant) {
	owned, lent := d.ledger.Exclusive(), d.ledger.Lent()
	d.write().Put(g)
	d.moved = d.moved || d.ledger.Exclusive() != owned || d.ledger.Lent() != lent
}

// drop ends every grant of a pod.
func (d *draft) drop(podUID string) {
	if d.ledger.Owns(podUID) {
		d.write().DropPod(podUID)
		d.moved = true
	}
}

// seats lists the benches of the base state that have other CPUs now.
func (d *draft) seats() []SeatChange {
	layout := d.layout()
	if !d.moved && layout == d.base.layout || d.fresh {
		return nil
	}
	var out []SeatChange
	for seat, b := range d.base.benches {
		after, ok := layout.CPUs(seat)
		if after == b.cpus {
			continue
		}
		members := slices.Clone(b.members)
		for _, id := range d.order {
			c := d.containers[id]
			if i, sits := slices.BinarySearch(members, id); sits && (c == nil || c.Seat != seat || !c.Alive()) {
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

// usualValues is how many values one container has, as a rule.
const usualValues = 4

// propose runs the hooks over one container, or over the pod where c is nil. A
// hook that panics loses its say; the others keep theirs.
func (d *draft) propose(p *Pod, c *Container) ([]lifecycle.Value, []lifecycle.Problem) {
	in := hookInput(d, p, c)
	out := output{fatal: d.policy.Fatal}
	out.Values = make([]lifecycle.Value, 0, usualValues)
	for _, h := range d.policy.Hooks {
		if _, last := h.(hook.Last); !last {
			out.run(h, in)
		}
	}
	out.scale(in)
	out.bound(in)
	if c != nil {
		out.Values = d.heed(c, out.Values)
	}
	for _, h := range d.policy.Hooks {
		if _, last := h.(hook.Last); last {
			out.run(h, in)
		}
	}
	if c != nil && c.Unasked {
		out.Values = apart(out.Values)
	}
	d.failed = cmp.Or(d.failed, out.failed)
	if c != nil && in.Creation != nil {
		c.Exports = out.Exports
	}
	return out.Values, out.Problems
}

func sortedIDs[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
