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

// parentJobs returns the jobs for the parent cgroups of present and future partitions, from the top down. In this
// source file, a parent cgroup is any cgroup above a partition.
func (p *partitionPass) parentJobs() []*job {
	k := p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	dirs := map[string]bool{}
	for at, r := range k.table.partitionRows {
		if r.target.Owner == ancestorOwner {
			dirs[at.dir] = true
		}
	}
	for _, s := range p.partitions {
		for d := path.Dir(s.dir); s.shouldExist && d != "."; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	var out []*job
	for dir := range dirs {
		at := fileKey{dir, lifecycle.Unified, cgroup.ExclusiveFile}
		r := k.table.partitionRows[at]
		if r == nil {
			none := lifecycle.Value{Field: lifecycle.Unified, Key: cgroup.ExclusiveFile}
			r = k.recordLocked(Item{Target: Target{Owner: ancestorOwner, Dir: dir, Parent: true}, Value: none, Requested: &none, RuntimeMayHaveWritten: k.Originals.originalsLost}, k.resolve(at), "")
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

// partitionCPUs returns the CPUs of all partitions of the agent whose directories match.
func (t *table) partitionCPUs(match func(dir string) bool) (sum cgroup.IDs) {
	for at, r := range t.partitionRows {
		if at.key == cgroup.ExclusiveFile && r.target.Owner != ancestorOwner && r.verified && match(at.dir) {
			has, _ := cgroup.ParseIDs(r.kernel) // no error: the kernel wrote the list
			sum = sum.Union(has)
		}
	}
	return sum
}

// cpusBelow returns the CPUs of all partitions below a cgroup: the present CPUs of the partitions and, if wanted is
// set, also the CPUs that partitions of the batch should have.
func (p *partitionPass) cpusBelow(dir string, wanted bool) cgroup.IDs {
	var sum cgroup.IDs
	for _, s := range p.partitions {
		if strings.HasPrefix(s.dir, dir+"/") {
			sum = sum.Union(s.presentCPUs)
			if wanted && s.shouldExist {
				sum = sum.Union(s.desiredCPUs)
			}
		}
	}
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	return sum.Union(p.k.table.partitionCPUs(func(d string) bool {
		return strings.HasPrefix(d, dir+"/") && !slices.ContainsFunc(p.partitions, func(s *partition) bool { return s.dir == d })
	}))
}

// originalCPUs returns the CPUs that other programs gave a cgroup before the agent's first write.
func (p *partitionPass) originalCPUs(j *job) cgroup.IDs {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	text, _ := j.row.history.originalText()
	before, _ := cgroup.ParseIDs(text) // no error: text is "" or a list that the kernel wrote
	return before
}

// forEachParent calls step for each job of a parent cgroup, with the CPUs that the cgroup reserves now. The function
// step can write another set to the cgroup.
func (p *partitionPass) forEachParent(jobs iter.Seq2[int, *job], step func(*job, cgroup.IDs)) {
	for _, j := range jobs {
		if j.done || !j.isCurrent() {
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
		p.parentErrors[j.dir] = err
		p.dropRowAtEnd(j) // if the cgroup was removed, it has no partitions below it
		j.fail(err)
	}
}

// dropRowAtEnd makes the keeper drop the row of a parent cgroup when the job ends.
func (p *partitionPass) dropRowAtEnd(j *job) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if !j.row.releasing {
		p.k.table.release(j.row, p.k.tree.Version)
	}
	j.generation, j.releasing = j.row.generation, true
}

// narrowParent takes from a parent cgroup the CPUs that no partition below it has any more.
func (p *partitionPass) narrowParent(j *job, cur cgroup.IDs) {
	j.detectDrift(cur.String())
	j.storeOriginal(cur.String())
	p.writeParent(j, cur, cur.And(p.cpusBelow(j.dir, false).Union(p.originalCPUs(j))))
}

// widenParent adds to a parent cgroup the CPUs that partitions below it should have.
func (p *partitionPass) widenParent(j *job, cur cgroup.IDs) {
	if is, err := p.k.tree.Read(j.dir, lifecycle.Unified, cgroup.PartitionFile); err != nil || is != "member" {
		p.parentErrors[j.dir] = cmp.Or(err, fmt.Errorf("%s is a partition itself (%s): %w", j.dir, is, ErrInPartition))
		return
	}
	p.writeParent(j, cur, cur.Union(p.cpusBelow(j.dir, true)))
}

// writeParent writes a set to a parent cgroup, if the present set (cur) is different.
func (p *partitionPass) writeParent(j *job, cur, set cgroup.IDs) {
	if set == cur {
		return
	}
	k := p.k
	p.writtenParents[j.dir] = true
	k.mu.Lock()
	j.row.history.LastText, j.row.shownText, j.row.text = cur.String(), "", set.String()
	j.text = j.row.text
	k.Originals.addLine(j.row)
	k.mu.Unlock()
	k.Originals.flush()
	if err := j.storeOriginalAndWrite(cur.String(), set.String()); err != nil {
		p.parentErrors[j.dir] = err
	}
}

// trimParent is the last step for a parent cgroup. It leaves the cgroup its original CPUs and the CPUs that partitions
// below it have, and ends the job.
func (p *partitionPass) trimParent(j *job, cur cgroup.IDs) {
	need := p.cpusBelow(j.dir, false)
	delete(p.parentErrors, j.dir)
	all := need.Union(p.originalCPUs(j))
	p.writeParent(j, cur, all)
	if err := p.parentErrors[j.dir]; err != nil {
		j.fail(err)
		return
	}
	if need.Empty() {
		p.dropRowAtEnd(j)
	}
	text, state := all.String(), Unchanged
	p.k.mu.Lock()
	j.row.text, j.text = text, text
	p.k.mu.Unlock()
	if p.writtenParents[j.dir] {
		state = Applied
	}
	j.endInForce(state, text)
}

// ParentCPUs returns the CPUs that an existing cgroup allows its children, and whether the keeper could read them. The
// CPUs of the agent's partitions count as allowed, too. In cgroup version 2, if the cgroup allows the same CPUs as the
// root cgroup, ParentCPUs returns "". Callers must then not intersect the lists of containers with these CPUs. The root
// cgroup has only online CPUs, so an offline CPU would drop out of such a list, and would not return when it comes
// online.
func (k *Keeper) ParentCPUs(dir string) (string, bool) {
	if k.tree.Version != cgroup.V2 {
		list, err := k.tree.Allowed(dir, lifecycle.CPUSetCPUs)
		return list, err == nil
	}
	list, root, err := k.allowedWithPartitions(dir)
	if root == list {
		list = ""
	}
	return list, err == nil
}

// allowedWithPartitions returns the CPUs that a cgroup allows its children (list) and the CPUs that the root allows its
// children (root). Both include the CPUs of partitions that this agent or an earlier run of it made.
func (k *Keeper) allowedWithPartitions(dir string) (list, root string, err error) {
	k.mu.Lock()
	parted := k.table.partitionCPUs(func(string) bool { return true })
	for _, has := range k.Originals.leftoverCPUs {
		parted = parted.Union(has)
	}
	k.mu.Unlock()
	for !parted.Empty() && dir != "." {
		is, err := k.tree.Read(dir, lifecycle.Unified, cgroup.PartitionFile)
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
