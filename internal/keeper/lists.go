package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// move takes one CPU or memory node list from the present set to the desired one, perhaps in
// several writes.
type move struct {
	job              *job
	previousText     string      // the text before the first write
	present, desired *cgroup.IDs // all moves of one pool share this set; it is never changed
	final            string      // the text of the last write; "" means the parent's list
	unchanged        bool        // the kernel had the final set already
	wrote            bool        // the kernel has the final set, or a part of it
	partialReason    error       // why only a part was written
}

// listPass is the work on all lists of one kind in a batch. The caller holds Keeper.lists.
//
// The order: first, cgroups with tasks lose the CPUs that they should lose, so that no CPU
// belongs to two cgroups. A set cannot be empty, so cgroups whose old and new sets are disjoint
// wait. They move in the order in which their new CPUs become free. Parents grow to the union of
// old and new before their children grow, and shrink to the new set after the children shrank.
// Version 1 refuses any other order, and version 2 would run the children elsewhere.
type listPass struct {
	tree        *cgroup.Tree
	moves       []*move
	notFreed    cgroup.IDs // CPUs that this batch should have freed, and the kernel refused
	unknownCPUs bool       // the CPUs of a cgroup are unknown, so no cgroup may get CPUs
	parsedLists
}

// parsedLists caches parsed lists, since the containers of a pool have the same list.
type parsedLists map[string]*cgroup.IDs

// parse is cgroup.ParseIDs with the cache.
func (p parsedLists) parse(text string) (*cgroup.IDs, error) {
	if set, known := p[text]; known {
		return set, nil
	}
	set, err := cgroup.ParseIDs(text)
	if err == nil {
		p[text] = &set
	}
	return &set, err
}

// runLists writes the lists among jobs.
func runLists(jobs []*job) {
	for _, field := range []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUSetMems} {
		mine := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.field != field })
		if len(mine) > 0 && !runPass(mine) {
			runAgain(mine)
		}
	}
}

// runAgain makes a second pass after a refusal. The lists may have changed since they were read,
// which makes the order of writes wrong. It reads all lists again, because a parent may change
// the effective lists of its children.
func runAgain(jobs []*job) {
	written := map[*job]bool{}
	again := slices.DeleteFunc(jobs, func(j *job) bool {
		written[j] = j.state == Applied || j.state == Clipped
		return !written[j] && j.state != Unchanged && j.state != Refused
	})
	for _, j := range again {
		j.done, j.kernelTextKnown = false, false
	}
	runPass(again)
	for _, j := range again {
		if j.state == Unchanged && written[j] {
			j.state = Applied
		}
	}
}

// runPass returns false if an outdated read may have caused a refusal.
func runPass(jobs []*job) bool {
	p := &listPass{tree: jobs[0].k.tree, parsedLists: parsedLists{}}
	for _, j := range jobs {
		p.plan(j)
	}
	leaves, parents := p.split()
	p.shrink(leaves, parents)
	for _, m := range parents { // from the top; a parent keeps the CPUs that its children still have
		p.step(m, m.present.Union(*m.desired))
	}
	p.moveDisjoint(leaves)
	for _, m := range leaves {
		p.finalWrite(m)
	}
	for _, m := range slices.Backward(parents) {
		p.finalWrite(m)
	}
	refused, outdated := false, false
	for _, m := range p.moves {
		p.confirm(m)
		refused = refused || m.job.state == Refused
		outdated = outdated || m.job.kernelTextKnown
	}
	return !refused || !outdated
}

// plan makes a move for a job whose value is still desired.
func (p *listPass) plan(j *job) {
	if j.done || !j.alive() {
		return
	}
	m := &move{job: j, final: j.text}
	if err := p.read(m); err != nil {
		j.fail(err)
		p.reserveUnread(j)
		return
	}
	if j.row.handle.Same(m.previousText, m.final) {
		m.present, m.unchanged, m.wrote = m.desired, true, true
		j.keepFound(m.previousText)
	}
	p.moves = append(p.moves, m)
}

// read reads the present set, and computes the desired one.
func (p *listPass) read(m *move) (err error) {
	if m.previousText, err = m.job.read(); err != nil {
		return err
	}
	m.job.noteSeen(m.previousText)
	m.present, err = p.parse(m.previousText)
	m.desired, _ = p.parse(m.job.text)
	v1 := p.tree.Version == cgroup.V1
	if err == nil && m.previousText == "" && !v1 {
		m.present, err = p.ids(p.tree.Effective(m.job.dir, m.job.field))
	}
	if err == nil && m.job.text == "" {
		// Only a restored value can be empty; it means the parent's list.
		if m.desired, err = p.ids(p.tree.Allowed(path.Dir(m.job.dir), m.job.field)); v1 {
			m.final = m.desired.String()
		}
	}
	if err == nil && m.desired.Empty() {
		err = &cgroup.Error{Op: "encode", Path: path.Join(m.job.dir, m.job.field.String()), Err: errors.New("the set is empty")}
	}
	return err
}

// reserveUnread reserves the CPUs that a cgroup with an unreadable list may have, so that no other
// cgroup gets them: its last known list, or all CPUs if no list is known.
func (p *listPass) reserveUnread(j *job) {
	if j.state != Refused || j.target.Parent || !isTemporary(j.err) {
		return
	}
	j.k.mu.Lock()
	last := j.row.kernel
	j.k.mu.Unlock()
	had, err := p.parse(last)
	want, _ := p.parse(j.text)
	if last == "" || err != nil || want.Empty() {
		p.unknownCPUs = true
		return
	}
	p.notFreed = p.notFreed.Union(had.Minus(*want))
}

func (p *listPass) ids(list string, err error) (*cgroup.IDs, error) {
	if err != nil {
		return new(cgroup.IDs), err
	}
	return p.parse(list)
}

// split separates the moves of cgroups with tasks from the moves of their parent cgroups. It
// orders the parents from the top down.
func (p *listPass) split() (leaves, parents []*move) {
	above := map[string]bool{}
	for _, m := range p.moves {
		for d := path.Dir(m.job.dir); d != "." && !above[d]; d = path.Dir(d) {
			above[d] = true
		}
	}
	for _, m := range p.moves {
		if m.job.target.Parent || above[m.job.dir] {
			parents = append(parents, m)
		} else {
			leaves = append(leaves, m)
		}
	}
	slices.SortFunc(parents, func(a, b *move) int {
		return cmp.Or(cmp.Compare(a.job.depth(), b.job.depth()), a.job.compare(b.job.fileKey))
	})
	return leaves, parents
}

// shrink takes from all cgroups the CPUs that they should lose, except from cgroups that would
// have none left.
func (p *listPass) shrink(leaves, parents []*move) {
	for _, m := range leaves {
		p.step(m, m.present.And(*m.desired))
	}
	for _, m := range slices.Backward(parents) {
		if rest := m.present.And(*m.desired); rest != *m.present && p.coversChildren(m, &rest) {
			// Children that are not in the batch may prevent the shrink, so it is tried again at
			// the end.
			before := *m.job
			if p.step(m, rest); !before.done && m.job.state == Refused && errors.Is(m.job.err, syscall.EBUSY) {
				*m.job = before
			}
		}
	}
}

// step writes an intermediate set between the present and the desired set, if it differs from
// the present set.
func (p *listPass) step(m *move, set cgroup.IDs) {
	if !m.job.done && !set.Empty() && set != *m.present {
		p.write(m, &set)
	}
}

func (p *listPass) coversChildren(parent *move, set *cgroup.IDs) bool {
	prefix := parent.job.dir + "/"
	for _, m := range p.moves {
		if strings.HasPrefix(m.job.dir, prefix) && !set.Contains(*m.present) {
			return false
		}
	}
	return true
}

// moveDisjoint moves the cgroups whose old and new sets are disjoint. Each waits until no other
// waiting cgroup has its new CPUs. In a cycle one of them goes first.
func (p *listPass) moveDisjoint(leaves []*move) {
	wait := slices.DeleteFunc(slices.Clone(leaves), func(m *move) bool {
		return m.job.done || m.present.Empty() || !m.present.And(*m.desired).Empty()
	})
	for len(wait) > 0 {
		next := max(0, slices.IndexFunc(wait, func(m *move) bool {
			return !slices.ContainsFunc(wait, func(o *move) bool { return o != m && !o.present.And(*m.desired).Empty() })
		}))
		p.finalWrite(wait[next])
		wait = slices.Delete(wait, next, next+1)
	}
}

// finalWrite writes the desired list, if the kernel lacks it.
func (p *listPass) finalWrite(m *move) {
	if m.job.done || m.wrote {
		return
	}
	gain := m.desired.Minus(*m.present)
	if !p.unknownCPUs {
		gain = gain.And(p.notFreed)
	}
	if !m.job.target.Parent && !gain.Empty() {
		p.fail(m, m.job.row.handle.OpError("write", m.final, fmt.Errorf("%w: %v", ErrNotFreed, gain)))
		return
	}
	p.write(m, m.desired)
}

// fail ends a move. Its cgroup keeps the CPUs that it should have lost, so no other cgroup gets
// them.
func (p *listPass) fail(m *move, err error) {
	if m.job.fail(err); m.job.state == Refused && !m.job.target.Parent {
		p.notFreed = p.notFreed.Union(m.present.Minus(*m.desired))
	}
}

// write writes a set. It ends the move if the kernel refuses the set, and notes whether the
// final set is written.
func (p *listPass) write(m *move, set *cgroup.IDs) {
	if !m.job.alive() {
		return
	}
	text := m.final
	if *set != *m.desired {
		text = set.String()
	}
	m.job.keepOriginal(m.previousText)
	var err error
	if *set != *m.present || text != m.previousText {
		err = m.job.row.handle.Write(text)
	}
	switch {
	case p.tree.Version == cgroup.V1 && errors.Is(err, syscall.EACCES):
		set, err = p.clip(m, set, err)
	case text == "" && errors.Is(err, syscall.ENOSPC):
		// Both versions refuse to empty the set of a cgroup with tasks. The parent's list has
		// the same effect, until the parent changes.
		m.final = set.String()
		err = m.job.row.handle.Write(m.final)
	}
	if err != nil {
		p.fail(m, err)
		return
	}
	m.present, m.previousText = set, m.final
	if m.wrote = *set == *m.desired; !m.wrote {
		m.previousText = set.String()
	}
}

// clip writes the part of a set that the parent allows, after version 1 refused the set because
// of the parent. It returns that part, which becomes the desired list.
func (p *listPass) clip(m *move, set *cgroup.IDs, refused error) (*cgroup.IDs, error) {
	allowed, err := p.ids(p.tree.Allowed(path.Dir(m.job.dir), m.job.field))
	if err != nil {
		return set, refused
	}
	part, want := set.And(*allowed), m.desired.And(*allowed)
	if want.Empty() || part == *set {
		return set, refused
	}
	m.desired = &want
	m.final, m.partialReason = m.desired.String(), refused
	if part == *m.present {
		return &part, nil
	}
	return &part, m.job.row.handle.Write(part.String())
}

// confirm reads back the set of a move and ends the move. In version 2 the parents may allow
// only a part of the list. If they allow no part of it, the kernel uses the parent's whole list.
func (p *listPass) confirm(m *move) {
	if m.job.done {
		return
	}
	v2 := p.tree.Version == cgroup.V2 && m.final != ""
	if v2 && !m.unchanged {
		// The effective list is the better proof: the kernel accepted the text, and the parents
		// allow it.
		if effective, err := p.ids(p.tree.Effective(m.job.dir, m.job.field)); err == nil && *effective == *m.desired {
			m.job.endInForce(Applied, m.final)
			return
		}
	}
	state, text, err := Unchanged, m.previousText, error(nil)
	if !m.unchanged {
		state = Applied
		if text, err = m.job.row.handle.Read(); err == nil && !m.job.row.handle.Same(text, m.final) {
			err = m.job.mismatchError(text)
		}
	}
	list := text
	if err == nil && v2 && m.partialReason == nil {
		list, err = p.tree.Effective(m.job.dir, m.job.field)
	}
	switch {
	case err != nil:
		m.job.fail(err)
	case m.partialReason != nil:
		m.job.finish(Clipped, text, text, m.partialReason)
	case !m.job.row.handle.Same(list, m.final):
		m.job.finish(Clipped, list, text, m.job.row.handle.OpError("verify", m.final, fmt.Errorf("the parent cgroup or offline CPUs leave only %s", list)))
	default:
		m.job.endInForce(state, text)
	}
}
