package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// chain returns the cgroups above present and future partitions, from the top.
func (p *partitionPass) chain() []*job {
	k := p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	dirs := map[string]bool{}
	for at, r := range k.table.partitionRows {
		if r.target.Owner == ancestorOwner {
			dirs[at.dir] = true
		}
	}
	for _, s := range p.all {
		for d := path.Dir(s.dir); s.wanted && d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	var out []*job
	for dir := range dirs {
		at := fileKey{dir, lifecycle.Unified, cgroup.Exclusive}
		r := k.table.partitionRows[at]
		if r == nil {
			none := lifecycle.Value{Field: lifecycle.Unified, Key: cgroup.Exclusive}
			r = k.recordLocked(Item{Target: Target{Owner: ancestorOwner, Dir: dir, Parent: true}, Value: none, Asked: &none, Carried: k.Originals.lost}, k.resolve(at), "")
		}
		j := p.jobs[at]
		if j == nil {
			j = k.newJob(r)
			p.jobs[at] = j
		}
		j.generation = r.generation
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.depth(), b.depth()), a.compare(b.fileKey))
	})
	return out
}

// inPartitions adds up the CPUs of the agent's partitions, without the partitions in some
// directories.
func (t *table) inPartitions(in func(dir string) bool) (sum cgroup.IDs) {
	for at, r := range t.partitionRows {
		if at.key == cgroup.Exclusive && r.target.Owner != ancestorOwner && r.verified && in(at.dir) {
			has, _ := cgroup.ParseIDs(r.kernel) // from the kernel's text
			sum = sum.Union(has)
		}
	}
	return sum
}

// cpusBelow adds up the CPUs of partitions below a cgroup: their present CPUs or, if wanted is set,
// the desired CPUs of the batch. It includes CPUs that other programs gave the cgroup before.
func (p *partitionPass) cpusBelow(dir string, wanted bool) cgroup.IDs {
	var sum cgroup.IDs
	for _, s := range p.all {
		if strings.HasPrefix(s.dir, dir+"/") {
			sum = sum.Union(s.previous)
			if wanted && s.wanted {
				sum = sum.Union(s.desired)
			}
		}
	}
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	return sum.Union(p.k.table.inPartitions(func(d string) bool {
		return strings.HasPrefix(d, dir+"/") && !slices.ContainsFunc(p.all, func(s *partition) bool { return s.dir == d })
	}))
}

// originalCPUs returns the CPUs that other programs gave a cgroup before the agent's first write.
func (p *partitionPass) originalCPUs(j *job) cgroup.IDs {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	text, _ := j.row.history.originalText()
	before, _ := cgroup.ParseIDs(text) // from the kernel's text
	return before
}

// forEachParent reads the present set of each cgroup above partitions, and calls a step that may write a
// new set.
func (p *partitionPass) forEachParent(jobs iter.Seq2[int, *job], step func(*job, cgroup.IDs)) {
	for _, j := range jobs {
		if j.done || !j.alive() {
			continue
		}
		text, err := j.row.handle.Read()
		var cur cgroup.IDs
		if err == nil {
			cur, err = cgroup.ParseIDs(text)
		}
		if err == nil {
			step(j, cur)
			continue
		}
		p.errors[j.dir] = err
		p.dropRow(j) // a cgroup that is gone has nothing below it
		j.fail(err)
	}
}

// dropRow removes the row of a cgroup above after this write.
func (p *partitionPass) dropRow(j *job) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if !j.row.releasing {
		p.k.table.release(j.row, p.k.tree.Version)
	}
	j.generation, j.releasing = j.row.generation, true
}

// narrow removes from a cgroup the CPUs that no partition below it has any more.
func (p *partitionPass) narrow(j *job, cur cgroup.IDs) {
	j.noteSeen(cur.String())
	j.keepOriginal(cur.String())
	p.set(j, cur, cur.And(p.cpusBelow(j.dir, false).Union(p.originalCPUs(j))))
}

// widen adds to a cgroup the CPUs that partitions below it should have.
func (p *partitionPass) widen(j *job, cur cgroup.IDs) {
	if is, err := p.k.tree.Read(j.dir, lifecycle.Unified, cgroup.Partition); err != nil || is != "member" {
		p.errors[j.dir] = cmp.Or(err, fmt.Errorf("%s is a partition itself (%s): %w", j.dir, is, ErrInPartition))
		return
	}
	p.set(j, cur, cur.Union(p.cpusBelow(j.dir, true)))
}

// set writes a set to a cgroup above, if the cgroup has a different set.
func (p *partitionPass) set(j *job, cur, set cgroup.IDs) {
	if set == cur {
		return
	}
	k := p.k
	p.wrote[j.dir] = true
	k.mu.Lock()
	j.row.history.LastText, j.row.shownText, j.row.text = cur.String(), "", set.String()
	j.text = j.row.text
	k.Originals.note(j.row)
	k.mu.Unlock()
	k.Originals.flush()
	if err := j.put(cur.String(), set.String()); err != nil {
		p.errors[j.dir] = err
	}
}

// trim reduces a cgroup above to the CPUs that partitions below have, or restores its original.
func (p *partitionPass) trim(j *job, cur cgroup.IDs) {
	need := p.cpusBelow(j.dir, false)
	delete(p.errors, j.dir)
	all := need.Union(p.originalCPUs(j))
	p.set(j, cur, all)
	if err := p.errors[j.dir]; err != nil {
		j.fail(err)
		return
	}
	if need.Empty() {
		p.dropRow(j)
	}
	text, state := all.String(), Unchanged
	p.k.mu.Lock()
	j.row.text, j.text = text, text
	p.k.mu.Unlock()
	if p.wrote[j.dir] {
		state = Applied
	}
	j.endInForce(state, text)
}

// ParentCPUs returns the CPUs that an existing cgroup allows its children, and whether they
// could be read. "" means that the cgroup allows the same CPUs as the root. In version 2, CPUs
// that the root lacks are offline, and return to every cgroup that lists them. A container whose
// list is narrowed meanwhile would stay without them. The CPUs of our partitions count as
// allowed, too.
func (k *Keeper) ParentCPUs(dir string) (string, bool) {
	if k.tree.Version != cgroup.V2 {
		list, err := k.tree.Allowed(dir, lifecycle.CPUSetCPUs)
		return list, err == nil
	}
	list, root, err := k.withPartitions(dir)
	if root == list {
		list = ""
	}
	return list, err == nil
}

// withPartitions returns the CPUs that a cgroup would allow its children without our partitions
// or those of an earlier keeper, and the same for the root.
func (k *Keeper) withPartitions(dir string) (list, root string, err error) {
	k.mu.Lock()
	parted := k.table.inPartitions(func(string) bool { return true })
	for _, has := range k.Originals.partitions {
		parted = parted.Union(has)
	}
	k.mu.Unlock()
	for !parted.Empty() && dir != "." {
		is, err := k.tree.Read(dir, lifecycle.Unified, cgroup.Partition)
		if err != nil || !strings.HasPrefix(is, "root") {
			break
		}
		dir = path.Dir(dir)
	}
	list, err = k.tree.Allowed(dir, lifecycle.CPUSetCPUs)
	if err != nil {
		return "", "", err
	}
	if root, err = k.tree.Allowed(".", lifecycle.CPUSetCPUs); err != nil || parted.Empty() {
		return list, root, err
	}
	bound := parted
	for d := dir; d != "."; d = path.Dir(d) {
		text, err := k.tree.Read(d, lifecycle.CPUSetCPUs, "")
		if own, bad := cgroup.ParseIDs(text); err == nil && bad == nil && !own.Empty() {
			bound = bound.And(own)
		}
	}
	has, err1 := cgroup.ParseIDs(list)
	all, err2 := cgroup.ParseIDs(root)
	return has.Union(bound).String(), all.Union(parted).String(), errors.Join(err1, err2)
}
