package keeper

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// chain returns the cgroups above partitions, those that were and those that are
// to be, from the top.
func (p *partitionPass) chain() []*job {
	k := p.k
	k.mu.Lock()
	defer k.mu.Unlock()
	dirs := map[string]bool{}
	for at, r := range k.parts {
		if r.target.Owner == chainOwner {
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
		at := place{dir, lifecycle.Unified, cgroup.Exclusive}
		r := k.parts[at]
		if r == nil {
			none := lifecycle.Value{Field: lifecycle.Unified, Key: cgroup.Exclusive}
			r = k.recordLocked(Item{Target: Target{Owner: chainOwner, Dir: dir, Parent: true}, Value: none, Asked: &none, Carried: k.lost}, "")
		}
		j := p.jobs[at]
		if j == nil {
			j = newJob(r)
			p.jobs[at] = j
		}
		j.gen = r.generation
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.place.depth(), b.place.depth()), a.place.compare(b.place))
	})
	return out
}

// below adds up the CPUs of partitions below a cgroup: what they have, or, with
// those of the batch, what they are to have. What was there before us stays.
func (p *partitionPass) below(dir string, wanted bool) cgroup.IDs {
	k := p.k
	mine := map[string]bool{}
	var sum cgroup.IDs
	for _, s := range p.all {
		mine[s.dir] = true
		if strings.HasPrefix(s.dir, dir+"/") {
			sum = sum.Union(s.had)
			if wanted && s.wanted {
				sum = sum.Union(s.want)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for at, r := range k.parts {
		if at.key == cgroup.Exclusive && r.target.Owner != chainOwner && !mine[at.dir] && r.verified && strings.HasPrefix(at.dir, dir+"/") {
			has, _ := cgroup.ParseIDs(r.kernel) // of what the kernel said
			sum = sum.Union(has)
		}
	}
	return sum
}

// foreign are the CPUs a cgroup was given before us.
func (p *partitionPass) foreign(j *job) cgroup.IDs {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	text, _ := j.row.back()
	before, _ := cgroup.ParseIDs(text) // of what the kernel said
	return before
}

// now reads a cgroup above partitions.
func (p *partitionPass) now(j *job) (cgroup.IDs, bool) {
	k := p.k
	if j.done || !k.alive(j) {
		return cgroup.IDs{}, false
	}
	text, err := k.tree.Read(j.place.dir, j.place.field, j.place.key)
	var cur cgroup.IDs
	if err == nil {
		cur, err = cgroup.ParseIDs(text)
	}
	if err != nil {
		p.wrong[j.place.dir] = err
		p.drop(j) // a cgroup that is gone has nothing below it
		k.fail(j, err)
		return cur, false
	}
	return cur, true
}

// drop has the work on a cgroup above be the last.
func (p *partitionPass) drop(j *job) {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if !j.row.releasing {
		p.k.startReleaseLocked(j.row)
	}
	j.gen, j.releasing = j.row.generation, true
}

// narrow takes from a cgroup above what nobody below has any more.
func (p *partitionPass) narrow(j *job) {
	cur, ok := p.now(j)
	if !ok {
		return
	}
	p.k.seen(j, cur.String())
	p.k.keepOriginal(j, cur.String())
	if rest := cur.And(p.below(j.place.dir, false).Union(p.foreign(j))); rest != cur {
		p.chainWrite(j, cur, rest)
	}
}

// widen gives a cgroup above what is to be had below it.
func (p *partitionPass) widen(j *job) {
	cur, ok := p.now(j)
	if !ok {
		return
	}
	dir := j.place.dir
	if is, err := p.k.tree.Read(dir, lifecycle.Unified, cgroup.Partition); err != nil || is != "member" {
		p.wrong[dir] = cmp.Or(err, fmt.Errorf("%s is a partition of its own (%s): %w", dir, is, ErrInPartition))
		return
	}
	if all := cur.Union(p.below(dir, true)); all != cur {
		p.chainWrite(j, cur, all)
	}
}

func (p *partitionPass) chainWrite(j *job, cur, set cgroup.IDs) {
	k := p.k
	p.wrote[j.place.dir] = true
	k.mu.Lock()
	j.row.was, j.row.shown, j.row.want = cur.String(), "", set.String()
	j.want = j.row.want
	k.noteLocked(j.row)
	k.mu.Unlock()
	k.flush()
	if err := p.put(j, cur.String(), set.String()); err != nil {
		p.wrong[j.place.dir] = err
	}
}

// level leaves a cgroup above what is had below it, or what was there before us.
func (p *partitionPass) level(j *job) {
	cur, ok := p.now(j)
	if !ok {
		return
	}
	k, dir := p.k, j.place.dir
	need := p.below(dir, false)
	delete(p.wrong, dir)
	if set := need.Union(p.foreign(j)); set != cur {
		p.chainWrite(j, cur, set)
		cur = set
	}
	if err := p.wrong[dir]; err != nil {
		k.fail(j, err)
		return
	}
	if need.Empty() {
		p.drop(j)
	}
	k.mu.Lock()
	j.row.want, j.want = cur.String(), cur.String()
	k.mu.Unlock()
	state := Same
	if p.wrote[dir] {
		state = Applied
	}
	k.finish(j, state, cur.String(), cur.String(), nil)
}
