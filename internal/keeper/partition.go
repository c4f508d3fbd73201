package keeper

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ancestorOwner is the owner of values of cgroups above partitions. These cgroups belong to no
// single pod.
const ancestorOwner = "partitions"

// ErrInPartition is the reason why a cgroup cannot be a partition: a cgroup above it is a
// partition of another program.
var ErrInPartition = errors.New("a cgroup above it is already a partition")

// partition is a cgroup that should become a remote cpuset partition, or stop being one. It has
// two files. Every cgroup above it must allow its CPUs, and so gets the union of all partitions
// below it.
type partition struct {
	dir string
	// cpus and root are the jobs for its two files. They are done already if the keeper keeps no
	// value in the file.
	cpus, root        *job
	desired, previous cgroup.IDs
	wanted            bool   // the cgroup should be a partition; if false, it becomes an ordinary cgroup again
	kernelText        string // the kernel's text
	wrote             bool
}

// partitionPass is the work on all partitions of a batch. The caller holds Keeper.lists.
//
// The order: first, partitions end or lose CPUs. Then the cgroups above shrink, from the bottom,
// so that their CPUs are free for other partitions. Then come the lists of the batch. They must
// precede new partitions: a cgroup whose CPUs all belong to a partition gets all of its parent's
// CPUs, including owned CPUs. Then the cgroups above grow, from the top. Last, the partitions
// grow.
type partitionPass struct {
	k       *Keeper
	jobs    map[fileKey]*job
	all     []*partition
	parents []*job           // set in free, used in form
	errors  map[string]error // why a cgroup above did not get its CPUs
	wrote   map[string]bool  // cgroups above that were written
}

// runSets writes the partitions and lists among jobs. If urgent is set, it returns the lists
// that it did not write because its partitions have the same effect.
func (k *Keeper) runSets(jobs []*job, urgent bool) (later []*job) {
	p := &partitionPass{k: k, jobs: map[fileKey]*job{}, errors: map[string]error{}, wrote: map[string]bool{}}
	if !p.gather(jobs) {
		runLists(jobs)
		return nil
	}
	p.freeLostCPUs()
	if urgent {
		jobs, later = p.postpone(jobs)
	}
	wanted := slices.DeleteFunc(slices.Clone(p.all), func(s *partition) bool { return !s.wanted })
	runLists(jobs)
	p.form()
	if slices.ContainsFunc(wanted, func(s *partition) bool { return !s.wanted || s.kernelText != "root" || s.previous != s.desired }) {
		runLists(later)
		return nil
	}
	return later
}

// gather finds the work on partitions, and reports whether there is any.
func (p *partitionPass) gather(jobs []*job) bool {
	for _, j := range jobs {
		if j.isPartition() {
			p.jobs[j.fileKey] = j
		}
	}
	if adopted := p.adopt(); len(p.jobs) == 0 && !adopted {
		return false
	}
	dirs := map[string]bool{}
	for at, j := range p.jobs {
		if j.target.Owner != ancestorOwner {
			dirs[at.dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		s := &partition{dir: dir, cpus: p.jobFor(dir, cgroup.Exclusive), root: p.jobFor(dir, cgroup.Partition)}
		s.wanted = !s.cpus.done && !s.root.done && !s.cpus.releasing && !s.root.releasing
		p.all = append(p.all, s)
	}
	return true
}

// adopt adds partitions whose owner was forgotten, so that other cgroups can get their CPUs. It
// reports whether it found any. If the cgroup of such a partition is gone, only the cgroups
// above need work.
func (p *partitionPass) adopt() bool {
	k := p.k
	k.mu.Lock()
	orphans := k.table.orphans
	k.table.orphans = nil
	k.mu.Unlock()
	for _, at := range orphans {
		if claimed, _ := k.claim(at); claimed {
			p.jobFor(at.dir, at.key)
		}
	}
	return len(orphans) > 0
}

// hasOrphans reports whether there is a partition to adopt.
func (k *Keeper) hasOrphans() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.table.orphans) > 0
}

// jobFor returns the job for a file: the job of the batch, or a new job for the earlier desired
// value. Without either, it returns a job that is done already.
func (p *partitionPass) jobFor(dir, key string) *job {
	at := fileKey{dir, lifecycle.Unified, key}
	if j := p.jobs[at]; j != nil {
		return j
	}
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	r := p.k.table.partitionRows[at]
	if r == nil || r.text == "" && !r.releasing {
		return &job{done: true}
	}
	p.jobs[at] = p.k.newJob(r)
	return p.jobs[at]
}

// freeLostCPUs takes from partitions the CPUs that they should lose.
func (p *partitionPass) freeLostCPUs() {
	for _, s := range p.all {
		s.read(p.k.tree)
	}
	for _, s := range p.all {
		s.reduce()
	}
	p.parents = p.chain()
	p.forEachParent(slices.Backward(p.parents), p.narrow)
}

// form creates partitions, or gives them the CPUs that they should have.
func (p *partitionPass) form() {
	p.forEachParent(slices.All(p.parents), p.widen)
	for _, s := range p.all {
		if s.wanted {
			p.makePartition(s)
		}
	}
	p.forEachParent(slices.Backward(p.parents), p.trim)
}

// postpone separates the jobs whose lists the kernel narrows when it forms a partition of the
// batch. Such a list only loses CPUs, and only to partitions. It must keep a CPU, because the
// kernel gives the parent's CPUs to a list that becomes empty. A list that was never verified is
// not postponed. No list is postponed if another list of the batch gets such CPUs, since that
// list is written before the partition exists.
func (p *partitionPass) postpone(jobs []*job) (now, later []*job) {
	var parted cgroup.IDs
	for _, s := range p.all {
		if s.wanted {
			parted = parted.Union(s.desired)
		}
	}
	if parted.Empty() {
		return jobs, nil
	}
	lists := parsedLists{}
	for _, j := range jobs {
		if j.field != lifecycle.CPUSetCPUs || j.done {
			now = append(now, j)
			continue
		}
		// Errors are ignored, because both lists are valid: the kernel had verifiedText, and text will be written.
		want, _ := lists.parse(j.text)
		has := new(cgroup.IDs)
		if j.kernelTextKnown {
			has, _ = lists.parse(j.verifiedText)
		}
		if !want.Minus(*has).And(parted).Empty() {
			return jobs, nil
		}
		lost := has.Minus(*want)
		if !j.target.Parent && !j.releasing && !want.Empty() && !lost.Empty() && has.Contains(*want) && parted.Contains(lost) {
			later = append(later, j)
		} else {
			now = append(now, j)
		}
	}
	return now, later
}

// read reads the present files.
func (s *partition) read(tree *cgroup.Tree) {
	var err error
	read := func(key string, j *job) (text string) {
		if err == nil {
			text, err = tree.Read(s.dir, lifecycle.Unified, key)
		}
		if err == nil && !j.done {
			j.noteSeen(text)
		}
		return text
	}
	s.kernelText = read(cgroup.Partition, s.root)
	list := read(cgroup.Exclusive, s.cpus)
	if err == nil {
		s.previous, err = cgroup.ParseIDs(list)
	}
	if err == nil && s.wanted {
		s.desired, err = cgroup.ParseIDs(s.cpus.text)
	}
	if err != nil {
		s.fail(err)
	}
}

// fail ends the work on a partition.
func (s *partition) fail(err error) {
	s.wanted = false
	for _, j := range []*job{s.cpus, s.root} {
		if !j.done {
			j.fail(err)
		}
	}
}

// put stores the original text of the job's file, and then writes the file.
func (j *job) put(before, text string) error {
	j.keepOriginal(before)
	return j.row.handle.Write(text)
}

// reduce ends partitions that are no longer desired, and takes CPUs from partitions that should
// have other CPUs.
func (s *partition) reduce() {
	switch {
	case !s.wanted:
		s.end()
		return
	case !s.root.alive() || !s.cpus.alive():
		s.wanted = false
		return
	}
	rest := s.previous.And(s.desired)
	if s.kernelText != "root" && s.kernelText != "member" {
		// The partition is not valid. The kernel frees its reserved CPUs only when the whole
		// partition is undone (seen on 6.12).
		rest = cgroup.IDs{}
	}
	var err error
	if s.kernelText != "member" && rest.Empty() {
		err = s.root.put(s.kernelText, "member")
		s.kernelText, s.wrote = "member", true
	}
	if err == nil && rest != s.previous {
		s.wrote = true
		err = s.cpus.put(s.previous.String(), rest.String())
		s.previous = rest
	}
	if err != nil {
		s.fail(err)
	}
}

// end turns the partition back into an ordinary cgroup, and then restores the originals.
func (s *partition) end() {
	s.root.restoreOriginal(s.kernelText)
	s.cpus.restoreOriginal(s.previous.String())
	if s.cpus.done && s.cpus.err == nil && s.cpus.releasing {
		s.previous = cgroup.IDs{}
	}
}

// restoreOriginal restores the original of a partition's file, if the file's row is being
// released.
func (j *job) restoreOriginal(now string) {
	if j.done || !j.alive() {
		return
	}
	back := j.text
	if j.key == cgroup.Partition {
		back, _, _ = strings.Cut(back, " invalid")
	}
	switch {
	case !j.releasing:
		j.finish(Pending, "", "", nil)
	case now == back:
		j.endInForce(Unchanged, now)
	default:
		j.endWith(j.put(now, back), Applied, back)
	}
}

// makePartition makes a partition, and undoes it if the kernel does not accept it.
func (p *partitionPass) makePartition(s *partition) {
	state := Applied
	if !s.wrote && s.kernelText == "root" && s.previous == s.desired {
		state = Unchanged
	}
	err := p.chainError(s)
	if err == nil && s.previous != s.desired {
		err = s.cpus.put(s.previous.String(), s.desired.String())
	}
	if err == nil {
		s.previous = s.desired
		if s.kernelText != "root" {
			err = s.root.put(s.kernelText, "root")
		}
	}
	if err == nil {
		err = s.verify(p.k.tree)
	}
	if err != nil {
		s.undo(p.k)
		s.fail(err)
		return
	}
	if state == Unchanged {
		s.root.keepFound("root")
		s.cpus.keepFound(s.desired.String())
	}
	s.cpus.endInForce(state, s.desired.String())
	s.root.endInForce(state, "root")
}

// chainError returns the error of the cgroups above, if any.
func (p *partitionPass) chainError(s *partition) error {
	for d := path.Dir(s.dir); d != "."; d = path.Dir(d) {
		if err := p.errors[d]; err != nil {
			return err
		}
	}
	return nil
}

// verify reads back whether a partition is in force.
func (s *partition) verify(tree *cgroup.Tree) error {
	is, err := s.root.row.handle.Read()
	if err != nil {
		return err
	}
	if s.kernelText = is; is != "root" {
		return s.root.mismatchError(is)
	}
	list, err := tree.Effective(s.dir, lifecycle.CPUSetCPUs)
	if err != nil {
		return err
	}
	if got, err := cgroup.ParseIDs(list); err != nil || got != s.desired {
		return s.cpus.row.handle.OpError("verify", s.desired.String(), fmt.Errorf("the partition has CPUs %q", list))
	}
	return nil
}

// undo removes a partition that is only partly made. The cpusets of the other containers are
// correct without it.
func (s *partition) undo(k *Keeper) {
	if s.kernelText != "member" {
		_ = s.root.row.handle.Write("member") // the first error is reported
	}
	k.mu.Lock()
	before, _ := s.cpus.row.history.originalText()
	k.mu.Unlock()
	if s.previous.String() != before && s.cpus.row.handle.Write(before) == nil {
		s.previous = cgroup.IDs{}
	}
}

// isInvalidated reports whether the kernel's text means that a partition of ours is invalid.
func isInvalidated(p fileKey, text, ours string) bool {
	return p.key == cgroup.Partition && ours == "root" && strings.HasPrefix(text, "root invalid")
}
