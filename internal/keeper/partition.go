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
// above, from the bottom, so that the same CPUs can be had elsewhere below them;
// then, from the top, they get what is new, and at last the partitions do. In
// force a partition takes its CPUs out of everybody's set in one step: it comes
// before the lists of its batch.
type partitionPass struct {
	k     *Keeper
	jobs  map[place]*job
	all   []*partition
	wrong map[string]error // why a cgroup above did not get what it was to
	wrote map[string]bool  // cgroups above that were written
}

// runSets writes the partitions and lists among jobs.
func (k *Keeper) runSets(jobs []*job) {
	if p := k.partitionsIn(jobs); p != nil {
		p.run()
	}
	k.runLists(jobs)
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

func (p *partitionPass) run() {
	for _, s := range p.all {
		p.look(s)
	}
	for _, s := range p.all {
		p.giveUp(s)
	}
	chain := p.chain()
	for _, j := range slices.Backward(chain) {
		p.narrow(j)
	}
	for _, j := range chain {
		p.widen(j)
	}
	for _, s := range p.all {
		p.take(s)
	}
	for _, j := range slices.Backward(chain) {
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

// take makes a partition, and undoes it where the kernel does not have it.
func (p *partitionPass) take(s *partition) {
	if !s.wanted {
		return
	}
	same := !s.wrote && s.is == "root" && s.had == s.want
	err := p.above(s)
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

// above is what went wrong with the cgroups above.
func (p *partitionPass) above(s *partition) error {
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

// spoiled reports whether a text is what the kernel made of a partition of ours.
func spoiled(p place, text, ours string) bool {
	return p.key == cgroup.Partition && ours == "root" && strings.HasPrefix(text, "root invalid")
}

// inPartitions returns the CPUs that partitions of ours have, or of an earlier
// keeper's.
func (k *Keeper) inPartitions() cgroup.IDs {
	k.mu.Lock()
	defer k.mu.Unlock()
	var sum cgroup.IDs
	add := func(text string) {
		has, _ := cgroup.ParseIDs(text) // of what the kernel said, or we did
		sum = sum.Union(has)
	}
	for at, r := range k.parts {
		if at.key == cgroup.Exclusive && r.target.Owner != chainOwner && r.verified {
			add(r.kernel)
		}
	}
	for at, o := range k.remembered {
		if at.key == cgroup.Exclusive && o.Owner != chainOwner {
			add(o.Ours)
		}
	}
	return sum
}

// withPartitions returns the CPUs a cgroup would allow its children if there
// were no partitions of ours, and those the root would.
func (k *Keeper) withPartitions(dir string) (list, root string, err error) {
	parted := k.inPartitions()
	for !parted.Empty() && dir != "." {
		is, err := k.tree.Read(dir, lifecycle.Unified, cgroup.Partition)
		if err != nil || !strings.HasPrefix(is, "root") {
			break
		}
		dir = path.Dir(dir)
	}
	list, err = k.tree.ParentCPUs(dir)
	if err != nil {
		return "", "", err
	}
	if root, err = k.tree.ParentCPUs("."); err != nil || parted.Empty() {
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
