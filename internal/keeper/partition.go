package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// chainOwner owns what cgroups above partitions are given, which is nobody's of
// theirs alone.
const chainOwner = "partitions"

// ErrInPartition is why a cgroup is no partition: one above it is, and is not
// ours.
var ErrInPartition = errors.New("a cgroup above is a partition already")

func isPartition(p place) bool {
	return p.field == lifecycle.Unified && (p.key == cgroup.Exclusive || p.key == cgroup.Partition)
}

// partitions is what the keeper knows of remote cpuset partitions. A partition
// is two files, whose CPUs every cgroup above has to let it have: these get the
// sum of what is below them.
type partitions struct {
	// parts are the rows of such files. orphans are those of owners that were
	// forgotten, and whose cgroup may still be there. Guarded by Keeper.mu.
	parts   map[place]*row
	orphans []place
}

// partition is a cgroup that is to be one, or to be none any more.
type partition struct {
	dir string
	// cpus and root are the work on its two files; nil where that is not kept.
	cpus, root *job
	want, had  cgroup.IDs
	wanted     bool   // else it ends
	is         string // the kernel's text
	wrote      bool
}

// partitionPass is the work on all partitions of a batch. Keeper.lists is held.
//
// The order: what ends ends, and what loses CPUs loses them; then the cgroups
// above, from the bottom, so that the same CPUs can be had elsewhere below them.
// Then come the lists of the batch: a cgroup that is left with none of its CPUs by a
// partition has all that the one above it has, those of owners too. Then, from the
// top, the cgroups above get what is new, and at last the partitions do.
type partitionPass struct {
	k     *Keeper
	jobs  map[place]*job
	all   []*partition
	above []*job           // from free to form
	wrong map[string]error // why a cgroup above did not get what it was to
	wrote map[string]bool  // cgroups above that were written
}

// runSets writes the partitions and lists among jobs. Of what is urgent it leaves the lists that its partitions make as
// good as written, and returns them.
func (k *Keeper) runSets(jobs []*job, urgent bool) (later []*job) {
	p := k.partitionsIn(jobs)
	if p == nil {
		k.runLists(jobs)
		return nil
	}
	p.free()
	if urgent {
		jobs, later = p.postpone(jobs)
	}
	wanted := slices.DeleteFunc(slices.Clone(p.all), func(s *partition) bool { return !s.wanted })
	k.runLists(jobs)
	p.form()
	if len(later) > 0 && !inForce(wanted) {
		k.runLists(later)
		return nil
	}
	return later
}

// partitionsIn returns the work on partitions; nil where there is none.
func (k *Keeper) partitionsIn(jobs []*job) *partitionPass {
	p := &partitionPass{k: k, jobs: map[place]*job{}, wrong: map[string]error{}, wrote: map[string]bool{}}
	for _, j := range jobs {
		if isPartition(j.place) {
			p.jobs[j.place] = j
		}
	}
	if adopted := p.adopt(); len(p.jobs) == 0 && !adopted {
		return nil
	}
	dirs := map[string]bool{}
	for at, j := range p.jobs {
		if j.target.Owner != chainOwner {
			dirs[at.dir] = true
		}
	}
	for dir := range dirs {
		s := &partition{dir: dir, cpus: p.job(dir, cgroup.Exclusive), root: p.job(dir, cgroup.Partition)}
		s.wanted = s.cpus != nil && s.root != nil && !s.cpus.done && !s.root.done && !s.cpus.releasing && !s.root.releasing
		p.all = append(p.all, s)
	}
	slices.SortFunc(p.all, func(a, b *partition) int { return cmp.Compare(a.dir, b.dir) })
	return p
}

// adopt takes in partitions whose owner is forgotten: the CPUs are for others. It
// reports whether there were any; of those whose cgroup is gone nothing is left
// to do but in the cgroups above.
func (p *partitionPass) adopt() bool {
	k := p.k
	k.mu.Lock()
	var mine []origin
	some := len(k.orphans) > 0
	for _, at := range k.orphans {
		if o, still := k.remembered[at]; still {
			mine = append(mine, o)
		}
	}
	k.orphans = nil
	k.mu.Unlock()
	for _, o := range mine {
		k.claim(o)
		at := place{o.Dir, o.Field, o.Key}
		k.mu.Lock()
		if r := k.parts[at]; r != nil && r.releasing {
			p.jobs[at] = newJob(r)
		}
		k.mu.Unlock()
	}
	return some
}

// orphaned reports whether there is something to adopt.
func (k *Keeper) orphaned() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.orphans) > 0
}

// job returns the work on a file: that of the batch, or else on what was wanted
// there before. It is nil where nothing is.
func (p *partitionPass) job(dir, key string) *job {
	at := place{dir, lifecycle.Unified, key}
	if j := p.jobs[at]; j != nil {
		return j
	}
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	r := p.k.parts[at]
	if r == nil || r.want == "" && !r.releasing {
		return nil
	}
	j := newJob(r)
	p.jobs[at] = j
	return j
}

// free takes from partitions what they are to have no more.
func (p *partitionPass) free() {
	for _, s := range p.all {
		p.look(s)
	}
	for _, s := range p.all {
		p.giveUp(s)
	}
	p.above = p.chain()
	for _, j := range slices.Backward(p.above) {
		p.narrow(j)
	}
}

// form gives them what they are to have.
func (p *partitionPass) form() {
	for _, j := range p.above {
		p.widen(j)
	}
	for _, s := range p.all {
		p.take(s)
	}
	for _, j := range slices.Backward(p.above) {
		p.level(j)
	}
}

// look finds out what is there.
func (p *partitionPass) look(s *partition) {
	var list string
	for _, f := range []struct {
		key string
		of  *job
		to  *string
	}{{cgroup.Partition, s.root, &s.is}, {cgroup.Exclusive, s.cpus, &list}} {
		text, err := p.k.tree.Read(s.dir, lifecycle.Unified, f.key)
		if err != nil {
			p.fail(s, err)
			return
		}
		if *f.to = text; f.of != nil && !f.of.done {
			p.k.seen(f.of, text)
		}
	}
	var err error
	if s.had, err = cgroup.ParseIDs(list); err == nil && s.wanted {
		s.want, err = cgroup.ParseIDs(s.cpus.want)
	}
	if err != nil {
		p.fail(s, err)
	}
}

// fail ends the work on a partition.
func (p *partitionPass) fail(s *partition, err error) {
	s.wanted = false
	for _, j := range []*job{s.cpus, s.root} {
		if j != nil && !j.done {
			p.k.fail(j, err)
		}
	}
}

// put writes one file and keeps what was there before.
func (p *partitionPass) put(j *job, before, text string) error {
	p.k.keepOriginal(j, before)
	return p.k.tree.WriteText(j.place.dir, j.place.field, j.place.key, text)
}

// giveUp ends what is not wanted, and takes CPUs from what is to have others.
func (p *partitionPass) giveUp(s *partition) {
	switch {
	case !s.wanted:
		p.end(s)
		return
	case !p.k.alive(s.root) || !p.k.alive(s.cpus):
		s.wanted = false
		return
	}
	rest := s.had.And(s.want)
	if s.is != "root" && s.is != "member" {
		// Not valid. What the kernel keeps for it is free again only when all of it
		// is taken back (seen on 6.12).
		rest = cgroup.IDs{}
	}
	var err error
	if s.is != "member" && rest.Empty() {
		err = p.put(s.root, s.is, "member")
		s.is, s.wrote = "member", true
	}
	if err == nil && rest != s.had {
		s.wrote = true
		err = p.put(s.cpus, s.had.String(), rest.String())
		s.had = rest
	}
	if err != nil {
		p.fail(s, err)
	}
}

// end gives back what was there before, and first that it was no partition.
func (p *partitionPass) end(s *partition) {
	for _, f := range []struct {
		of  *job
		now string
	}{{s.root, s.is}, {s.cpus, s.had.String()}} {
		j := f.of
		switch {
		case j == nil || j.done || !p.k.alive(j):
			continue
		case !j.releasing:
			p.k.finish(j, Pending, "", "", nil)
			continue
		}
		back, _, _ := strings.Cut(j.want, " invalid")
		if j.place.key == cgroup.Exclusive {
			back = j.want
		}
		if f.now == back {
			p.k.finish(j, Same, f.now, f.now, nil)
			continue
		}
		if err := p.put(j, f.now, back); err != nil {
			p.k.fail(j, err)
			continue
		}
		p.k.finish(j, Applied, back, back, nil)
	}
	if s.cpus != nil && s.cpus.done && s.cpus.err == nil && s.cpus.releasing {
		s.had = cgroup.IDs{}
	}
}

// take makes a partition, and undoes it where the kernel does not have it.
func (p *partitionPass) take(s *partition) {
	if !s.wanted {
		return
	}
	same := !s.wrote && s.is == "root" && s.had == s.want
	err := p.trouble(s)
	if err == nil && s.had != s.want {
		err = p.put(s.cpus, s.had.String(), s.want.String())
	}
	if err == nil {
		s.had = s.want
		if s.is != "root" {
			err = p.put(s.root, s.is, "root")
		}
	}
	if err == nil {
		err = p.verify(s)
	}
	if err != nil {
		p.undo(s)
		p.fail(s, err)
		return
	}
	state := Applied
	if same {
		state = Same
		p.k.keepFound(s.root, "root")
		p.k.keepFound(s.cpus, s.want.String())
	}
	p.k.finish(s.cpus, state, s.want.String(), s.want.String(), nil)
	p.k.finish(s.root, state, "root", "root", nil)
}

// trouble is what went wrong with the cgroups above.
func (p *partitionPass) trouble(s *partition) error {
	for d := path.Dir(s.dir); d != "."; d = path.Dir(d) {
		if err := p.wrong[d]; err != nil {
			return err
		}
	}
	return nil
}

// verify reads back whether a partition is in force.
func (p *partitionPass) verify(s *partition) error {
	is, err := p.k.tree.Read(s.dir, lifecycle.Unified, cgroup.Partition)
	if err != nil {
		return err
	}
	if s.is = is; is != "root" {
		return p.k.differs(s.root, is)
	}
	list, err := p.k.tree.EffectiveCPUs(s.dir)
	if err != nil {
		return err
	}
	if got, err := cgroup.ParseIDs(list); err != nil || got != s.want {
		return &cgroup.Error{Op: "verify", Path: path.Join(s.dir, cgroup.Exclusive), Value: s.want.String(), Err: fmt.Errorf("the partition has CPUs %q", list)}
	}
	return nil
}

// undo leaves nothing half done: the sets of the others hold without it.
func (p *partitionPass) undo(s *partition) {
	if s.is != "member" {
		_ = p.k.tree.WriteText(s.dir, lifecycle.Unified, cgroup.Partition, "member") // what went wrong is told
	}
	p.k.mu.Lock()
	before, _ := s.cpus.row.back()
	p.k.mu.Unlock()
	if s.had.String() != before && p.k.tree.WriteText(s.dir, lifecycle.Unified, cgroup.Exclusive, before) == nil {
		s.had = cgroup.IDs{}
	}
}

// spoiled reports whether a text is what the kernel made of a partition of ours.
func spoiled(p place, text, ours string) bool {
	return p.key == cgroup.Partition && ours == "root" && strings.HasPrefix(text, "root invalid")
}
