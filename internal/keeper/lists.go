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
	presentSet, desiredSet *cgroup.IDs // never changed in place, because changes with equal lists share one set
	finalText              string      // the text of the last write of this change; "" means the parent's list
	unchanged              bool        // the kernel had the desired set before this pass
	hasDesired             bool        // the kernel has the desired set now
	partialReason          error       // why the keeper wrote only a part of the list; nil if it wrote the whole list
}

// listPass is the work on all CPU lists, or on all memory node lists, of a batch. The caller holds Keeper.listsMu.
//
// The order: first, cgroups with tasks lose the CPUs that they should lose, so that no CPU belongs to two cgroups. A
// set cannot be empty, so cgroups whose old and new sets are disjoint wait. They get their new sets in the order in
// which these CPUs become free. Parents grow to the union of the old and the new set before their children grow, and
// shrink to the new set after their children shrank. In any other order, cgroup version 1 refuses the writes, and
// version 2 runs the children on other CPUs for a short time.
type listPass struct {
	tree        *cgroup.Tree
	changes     []*listChange
	notFreed    cgroup.IDs // CPUs that a cgroup should have lost in this pass, and still has after a failed write or read
	unknownCPUs bool       // the CPUs of a cgroup are unknown, so no cgroup may get more CPUs
	parsedLists
}

// parsedLists caches parsed lists by their text, since many containers have the same list.
type parsedLists map[string]*cgroup.IDs

// parse parses a list, or returns the set in the cache. Callers must not change the set.
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

// runLists runs the jobs for lists of CPUs and memory nodes, and ignores the other jobs.
func runLists(jobs []*job) {
	for _, field := range []lifecycle.Field{lifecycle.CPUSetCPUs, lifecycle.CPUSetMems} {
		mine := slices.DeleteFunc(slices.Clone(jobs), func(j *job) bool { return j.field != field })
		if len(mine) > 0 && !runPass(mine) {
			runAgain(mine)
		}
	}
}

// runAgain makes a second pass after the kernel refused a write. Lists may have changed after the keeper last read
// them, and the order of the writes was then wrong. The second pass reads all lists again, also the lists that the
// first pass wrote, because a change of a parent's list may change the effective lists of the children.
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

// runPass writes lists of one kind: CPUs or memory nodes. It returns false if a second pass can help. This is so if the
// kernel refused a write, and the first pass did not read all lists, but relied on the texts that the keeper verified
// last.
func runPass(jobs []*job) bool {
	p := &listPass{tree: jobs[0].k.tree, parsedLists: parsedLists{}}
	for _, j := range jobs {
		p.plan(j)
	}
	leaves, parents := p.split()
	p.shrink(leaves, parents)
	for _, m := range parents { // from the top; each parent still has the CPUs that its children have not lost yet
		p.writeStep(m, m.presentSet.Union(*m.desiredSet))
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

// plan makes a listChange for a job, unless the job has ended. If the list cannot be read, plan ends the job.
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
		m.presentSet, m.unchanged, m.hasDesired = m.desiredSet, true, true
		j.storeFoundAsOriginal(m.presentText)
	}
	p.changes = append(p.changes, m)
}

// read reads the present set of a change, and computes the desired set.
func (p *listPass) read(m *listChange) (err error) {
	if m.presentText, err = m.job.read(); err != nil {
		return err
	}
	m.job.detectDrift(m.presentText)
	m.presentSet, err = p.parse(m.presentText)
	m.desiredSet, _ = p.parse(m.job.text)
	v1 := p.tree.Version == cgroup.V1
	if err == nil && m.presentText == "" && !v1 {
		m.presentSet, err = p.ids(p.tree.Effective(m.job.dir, m.job.field))
	}
	if err == nil && m.job.text == "" {
		// Only an original can be an empty text, which means the parent's list.
		if m.desiredSet, err = p.ids(p.tree.Allowed(path.Dir(m.job.dir), m.job.field)); v1 {
			m.finalText = m.desiredSet.String()
		}
	}
	if err == nil && m.desiredSet.Empty() {
		err = &cgroup.Error{Op: "encode", Path: path.Join(m.job.dir, m.job.field.String()), Err: errors.New("the set is empty")}
	}
	return err
}

// reserveUnread makes sure that no other cgroup gets the CPUs that a cgroup with an unreadable list may still
// have. These are the CPUs of the last known list without the desired CPUs, or all CPUs if no list is known.
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

// ids parses a list. If err, the error of the call that returned the list, is not nil, ids returns this error.
func (p *listPass) ids(list string, err error) (*cgroup.IDs, error) {
	if err != nil {
		return new(cgroup.IDs), err
	}
	return p.parse(list)
}

// split separates the changes of cgroups with tasks (leaves) from the changes of their parent cgroups. It
// sorts the parents from the top down.
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

// shrink takes from all cgroups the CPUs that they should lose. It skips a cgroup if the cgroup should
// lose all its present CPUs.
func (p *listPass) shrink(leaves, parents []*listChange) {
	for _, m := range leaves {
		p.writeStep(m, m.presentSet.And(*m.desiredSet))
	}
	for _, m := range slices.Backward(parents) {
		if rest := m.presentSet.And(*m.desiredSet); rest != *m.presentSet && p.coversChildren(m, &rest) {
			// A child that is not in the batch may still have the CPUs. The kernel then refuses the write,
			// and finalWrite tries it again.
			before := *m.job
			if p.writeStep(m, rest); !before.done && m.job.state == Refused && errors.Is(m.job.err, syscall.EBUSY) {
				*m.job = before
			}
		}
	}
}

// writeStep writes an intermediate set of a change, if the set is not empty and differs from the present
// set.
func (p *listPass) writeStep(m *listChange, set cgroup.IDs) {
	if !m.job.done && !set.Empty() && set != *m.presentSet {
		p.write(m, &set)
	}
}

// coversChildren reports whether a set has all present CPUs of the parent's children in the batch.
func (p *listPass) coversChildren(parent *listChange, set *cgroup.IDs) bool {
	prefix := parent.job.dir + "/"
	for _, m := range p.changes {
		if strings.HasPrefix(m.job.dir, prefix) && !set.Contains(*m.presentSet) {
			return false
		}
	}
	return true
}

// writeDisjoint writes the new sets of those cgroups whose old and new sets have no CPU in common. It first writes a
// cgroup whose new set contains no CPU of another cgroup that still waits. If all waiting cgroups wait for each other,
// writeDisjoint writes one of them first.
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

// finalWrite writes the desired list, if the kernel does not have it. It ends the change with an error if another
// cgroup still has a CPU of the list.
func (p *listPass) finalWrite(m *listChange) {
	if m.job.done || m.hasDesired {
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

// fail ends a change with an error. The cgroup still has the CPUs that it should have lost, so fail adds these CPUs to
// notFreed: no other cgroup gets them in this pass.
func (p *listPass) fail(m *listChange, err error) {
	if m.job.fail(err); m.job.state == Refused && !m.job.target.Parent {
		p.notFreed = p.notFreed.Union(m.presentSet.Minus(*m.desiredSet))
	}
}

// write writes a set, and updates the fields of the change. It ends the change with an error if the kernel refuses the
// set.
func (p *listPass) write(m *listChange, set *cgroup.IDs) {
	if !m.job.isCurrent() {
		return
	}
	text := m.finalText
	if *set != *m.desiredSet {
		text = set.String()
	}
	m.job.storeOriginal(m.presentText)
	var err error
	if *set != *m.presentSet || text != m.presentText {
		err = m.job.row.handle.Write(text)
	}
	switch {
	case p.tree.Version == cgroup.V1 && errors.Is(err, syscall.EACCES):
		set, err = p.clip(m, set, err)
	case text == "" && errors.Is(err, syscall.ENOSPC):
		// Both cgroup versions refuse an empty text for a cgroup with tasks. The text of the parent's
		// list has the same effect, until the parent's list changes.
		m.finalText = set.String()
		err = m.job.row.handle.Write(m.finalText)
	}
	if err != nil {
		p.fail(m, err)
		return
	}
	m.presentSet, m.presentText = set, m.finalText
	if m.hasDesired = *set == *m.desiredSet; !m.hasDesired {
		m.presentText = set.String()
	}
}

// clip is for cgroup version 1, after the kernel refused the whole set of a write. It writes only the part of the set
// that the parent cgroup allows, and returns this part. It also reduces the desired set of the change to the part that
// the parent allows. The parameter refused is the error of the refused write.
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
// the list. If they allow no part of it, the kernel uses the parent's whole list. In both cases the state is Clipped.
func (p *listPass) confirm(m *listChange) {
	if m.job.done {
		return
	}
	v2 := p.tree.Version == cgroup.V2 && m.finalText != ""
	if v2 && !m.unchanged {
		// If the effective list equals the desired list, the kernel accepted the text and the parents allow
		// the whole list. The keeper then need not read the file.
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
		m.job.finish(Clipped, list, text, m.job.row.handle.OpError("verify", m.finalText, fmt.Errorf("the kernel uses only %s, because the parent cgroup does not allow the rest or the rest is offline", list)))
	default:
		m.job.endInForce(state, text)
	}
}
