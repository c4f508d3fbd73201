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

// listChange changes one list of CPUs or memory nodes from the present set to the desired set, perhaps in several
// writes.
type listChange struct {
	job                    *job
	presentText            string      // the text in the file, as the keeper last read or wrote it
	presentSet, desiredSet *cgroup.IDs // all changes with the same list share this set, so it is never changed in place
	finalText              string      // the text of the last write; "" means the parent's list
	unchanged              bool        // the kernel had the desired set before this pass
	wrote                  bool        // the kernel has the desired set
	partialReason          error       // why the keeper wrote only a part of the list; nil if it did not
}

// listPass is the work on all CPU lists, or on all memory node lists, of a batch. The caller holds Keeper.listsMu.
//
// The order: first, cgroups with tasks lose the CPUs that they should lose, so that no CPU belongs to two cgroups. A
// set cannot be empty, so cgroups whose old and new sets are disjoint wait. They get their new sets in the order in
// which these CPUs become free. Parents grow to the union of old and new before their children grow, and shrink to the
// new set after their children shrank. Cgroup version 1 refuses any other order. Version 2 would run the children on
// other CPUs meanwhile.
type listPass struct {
	tree        *cgroup.Tree
	changes     []*listChange
	notFreed    cgroup.IDs // CPUs that this batch should have freed, and the kernel refused
	unknownCPUs bool       // the CPUs of a cgroup are unknown, so no cgroup may get CPUs
	parsedLists
}

// parsedLists caches parsed lists by their text, since the containers of a pool have the same list.
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

// runAgain makes a second pass after a refusal, because the lists may have changed after the keeper last read them. The
// order of the writes is then wrong. The second pass reads all lists again, because a parent may change the effective
// lists of its children.
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

// runPass writes lists of one kind. It returns false if the kernel refused a write, perhaps because the keeper did not
// read all lists anew.
func runPass(jobs []*job) bool {
	p := &listPass{tree: jobs[0].k.tree, parsedLists: parsedLists{}}
	for _, j := range jobs {
		p.plan(j)
	}
	leaves, parents := p.split()
	p.shrink(leaves, parents)
	for _, m := range parents { // from the top; a parent keeps the CPUs that its children still have
		p.step(m, m.presentSet.Union(*m.desiredSet))
	}
	p.writeDisjoint(leaves)
	for _, m := range leaves {
		p.finalWrite(m)
	}
	for _, m := range slices.Backward(parents) {
		p.finalWrite(m)
	}
	refused, outdated := false, false
	for _, m := range p.changes {
		p.confirm(m)
		refused = refused || m.job.state == Refused
		outdated = outdated || m.job.kernelTextKnown
	}
	return !refused || !outdated
}

// plan makes a listChange for a job whose value is still desired.
func (p *listPass) plan(j *job) {
	if j.done || !j.isCurrent() {
		return
	}
	m := &listChange{job: j, finalText: j.text}
	if err := p.read(m); err != nil {
		j.fail(err)
		p.reserveUnread(j)
		return
	}
	if j.row.handle.Same(m.presentText, m.finalText) {
		m.presentSet, m.unchanged, m.wrote = m.desiredSet, true, true
		j.keepFound(m.presentText)
	}
	p.changes = append(p.changes, m)
}

// read reads the present set, and computes the desired one.
func (p *listPass) read(m *listChange) (err error) {
	if m.presentText, err = m.job.read(); err != nil {
		return err
	}
	m.job.noteFoundText(m.presentText)
	m.presentSet, err = p.parse(m.presentText)
	m.desiredSet, _ = p.parse(m.job.text)
	v1 := p.tree.Version == cgroup.V1
	if err == nil && m.presentText == "" && !v1 {
		m.presentSet, err = p.ids(p.tree.Effective(m.job.dir, m.job.field))
	}
	if err == nil && m.job.text == "" {
		// Only a restored value can be empty; it means the parent's list.
		if m.desiredSet, err = p.ids(p.tree.Allowed(path.Dir(m.job.dir), m.job.field)); v1 {
			m.finalText = m.desiredSet.String()
		}
	}
	if err == nil && m.desiredSet.Empty() {
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

// split separates the changes of cgroups with tasks (leaves) from the changes of their parent cgroups. It
// orders the parents from the top down.
func (p *listPass) split() (leaves, parents []*listChange) {
	above := map[string]bool{}
	for _, m := range p.changes {
		for d := path.Dir(m.job.dir); d != "." && !above[d]; d = path.Dir(d) {
			above[d] = true
		}
	}
	for _, m := range p.changes {
		if m.job.target.Parent || above[m.job.dir] {
			parents = append(parents, m)
		} else {
			leaves = append(leaves, m)
		}
	}
	slices.SortFunc(parents, func(a, b *listChange) int {
		return cmp.Or(cmp.Compare(a.job.depth(), b.job.depth()), a.job.compare(b.job.fileKey))
	})
	return leaves, parents
}

// shrink takes from all cgroups the CPUs that they should lose, except from cgroups that would
// have none left.
func (p *listPass) shrink(leaves, parents []*listChange) {
	for _, m := range leaves {
		p.step(m, m.presentSet.And(*m.desiredSet))
	}
	for _, m := range slices.Backward(parents) {
		if rest := m.presentSet.And(*m.desiredSet); rest != *m.presentSet && p.coversChildren(m, &rest) {
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
func (p *listPass) step(m *listChange, set cgroup.IDs) {
	if !m.job.done && !set.Empty() && set != *m.presentSet {
		p.write(m, &set)
	}
}

// coversChildren reports whether a set has all present CPUs of the children in the batch.
func (p *listPass) coversChildren(parent *listChange, set *cgroup.IDs) bool {
	prefix := parent.job.dir + "/"
	for _, m := range p.changes {
		if strings.HasPrefix(m.job.dir, prefix) && !set.Contains(*m.presentSet) {
			return false
		}
	}
	return true
}

// writeDisjoint writes the new sets of cgroups whose old and new sets are disjoint. Each cgroup waits until no other
// waiting cgroup has its new CPUs. If several cgroups wait for each other, one of them is written first.
func (p *listPass) writeDisjoint(leaves []*listChange) {
	wait := slices.DeleteFunc(slices.Clone(leaves), func(m *listChange) bool {
		return m.job.done || m.presentSet.Empty() || !m.presentSet.And(*m.desiredSet).Empty()
	})
	for len(wait) > 0 {
		next := max(0, slices.IndexFunc(wait, func(m *listChange) bool {
			return !slices.ContainsFunc(wait, func(o *listChange) bool { return o != m && !o.presentSet.And(*m.desiredSet).Empty() })
		}))
		p.finalWrite(wait[next])
		wait = slices.Delete(wait, next, next+1)
	}
}

// finalWrite writes the desired list, if the kernel lacks it.
func (p *listPass) finalWrite(m *listChange) {
	if m.job.done || m.wrote {
		return
	}
	gain := m.desiredSet.Minus(*m.presentSet)
	if !p.unknownCPUs {
		gain = gain.And(p.notFreed)
	}
	if !m.job.target.Parent && !gain.Empty() {
		p.fail(m, m.job.row.handle.OpError("write", m.finalText, fmt.Errorf("%w: %v", ErrNotFreed, gain)))
		return
	}
	p.write(m, m.desiredSet)
}

// fail ends a change with an error. The cgroup keeps the CPUs that it should have lost, so the pass gives these CPUs to
// no other cgroup.
func (p *listPass) fail(m *listChange, err error) {
	if m.job.fail(err); m.job.state == Refused && !m.job.target.Parent {
		p.notFreed = p.notFreed.Union(m.presentSet.Minus(*m.desiredSet))
	}
}

// write writes a set. It ends the change if the kernel refuses the set. Otherwise it notes whether the desired set is
// written.
func (p *listPass) write(m *listChange, set *cgroup.IDs) {
	if !m.job.isCurrent() {
		return
	}
	text := m.finalText
	if *set != *m.desiredSet {
		text = set.String()
	}
	m.job.keepOriginal(m.presentText)
	var err error
	if *set != *m.presentSet || text != m.presentText {
		err = m.job.row.handle.Write(text)
	}
	switch {
	case p.tree.Version == cgroup.V1 && errors.Is(err, syscall.EACCES):
		set, err = p.clip(m, set, err)
	case text == "" && errors.Is(err, syscall.ENOSPC):
		// Both versions refuse to empty the set of a cgroup with tasks. The parent's list has
		// the same effect, until the parent changes.
		m.finalText = set.String()
		err = m.job.row.handle.Write(m.finalText)
	}
	if err != nil {
		p.fail(m, err)
		return
	}
	m.presentSet, m.presentText = set, m.finalText
	if m.wrote = *set == *m.desiredSet; !m.wrote {
		m.presentText = set.String()
	}
}

// clip writes the part of a set that the parent cgroup allows, after cgroup version 1 refused the whole set. It returns
// the part that the cgroup has then. The allowed part of the desired set becomes the desired set.
func (p *listPass) clip(m *listChange, set *cgroup.IDs, refused error) (*cgroup.IDs, error) {
	allowed, err := p.ids(p.tree.Allowed(path.Dir(m.job.dir), m.job.field))
	if err != nil {
		return set, refused
	}
	part, want := set.And(*allowed), m.desiredSet.And(*allowed)
	if want.Empty() || part == *set {
		return set, refused
	}
	m.desiredSet = &want
	m.finalText, m.partialReason = m.desiredSet.String(), refused
	if part == *m.presentSet {
		return &part, nil
	}
	return &part, m.job.row.handle.Write(part.String())
}

// confirm reads back the set of a change and ends the change. In cgroup version 2 the parents may allow only a part of
// the list. If they allow no part of the list, the kernel uses the parent's whole list.
func (p *listPass) confirm(m *listChange) {
	if m.job.done {
		return
	}
	v2 := p.tree.Version == cgroup.V2 && m.finalText != ""
	if v2 && !m.unchanged {
		// If the effective list is the desired one, the kernel accepted the text and the parents allow
		// the whole list.
		if effective, err := p.ids(p.tree.Effective(m.job.dir, m.job.field)); err == nil && *effective == *m.desiredSet {
			m.job.endInForce(Applied, m.finalText)
			return
		}
	}
	state, text, err := Unchanged, m.presentText, error(nil)
	if !m.unchanged {
		state = Applied
		if text, err = m.job.row.handle.Read(); err == nil && !m.job.row.handle.Same(text, m.finalText) {
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
	case !m.job.row.handle.Same(list, m.finalText):
		m.job.finish(Clipped, list, text, m.job.row.handle.OpError("verify", m.finalText, fmt.Errorf("the parent cgroup or offline CPUs leave only %s", list)))
	default:
		m.job.endInForce(state, text)
	}
}
