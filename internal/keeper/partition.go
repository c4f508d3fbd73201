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

// ErrInPartition is the reason why a cgroup cannot be a cpuset partition: another program has made a parent cgroup a
// partition.
var ErrInPartition = errors.New("the agent makes no partition below it")

// partition is a cgroup that should become a remote cpuset partition, or stop being one. It has two files. Every cgroup
// above it must allow its CPUs, so the keeper writes to each cgroup above the union of the CPUs of all partitions
// below.
type partition struct {
	dir string
	// exclusiveJob is the job for the file cpuset.cpus.exclusive, and partitionJob for cpuset.cpus.partition. A job
	// is done already if the keeper keeps no value in that file.
	exclusiveJob, partitionJob *job
	desiredCPUs, presentCPUs   cgroup.IDs
	shouldExist                bool   // the cgroup should be a partition; if false, the keeper makes it an ordinary cgroup again
	kernelText                 string // the kernel's text in cpuset.cpus.partition, such as "root" or "member"
	wrote                      bool   // the keeper has written one of the two files in this pass
}

// partitionPass is the work on all partitions of a batch. The caller holds Keeper.listsMu.
//
// The order: first, partitions end or lose CPUs. Then the cgroups above shrink, from the bottom, so that their CPUs are
// free for other partitions. Then runSets writes the lists of the batch. It must write them before new partitions
// exist: if all CPUs of a cgroup belong to a partition, the kernel gives the cgroup all CPUs of its parent, including
// owned CPUs. Then the cgroups above grow, from the top. Last, the partitions grow.
type partitionPass struct {
	k              *Keeper
	jobs           map[fileKey]*job
	partitions     []*partition
	parents        []*job           // see parentJobs; set by freeLostCPUs
	parentErrors   map[string]error // by directory: why a cgroup above did not get its CPUs
	writtenParents map[string]bool  // by directory: the cgroups above that were written
}

// runSets writes the partitions and lists among jobs. If urgent is set, it returns the lists
// that it did not write because its partitions have the same effect.
func (k *Keeper) runSets(jobs []*job, urgent bool) (later []*job) {
	p := &partitionPass{k: k, jobs: map[fileKey]*job{}, parentErrors: map[string]error{}, writtenParents: map[string]bool{}}
	if !p.gather(jobs) {
		runLists(jobs)
		return nil
	}
	p.freeLostCPUs()
	if urgent {
		jobs, later = p.postpone(jobs)
	}
	wanted := slices.DeleteFunc(slices.Clone(p.partitions), func(s *partition) bool { return !s.shouldExist })
	runLists(jobs)
	p.growPartitions()
	if slices.ContainsFunc(wanted, func(s *partition) bool {
		return !s.shouldExist || s.kernelText != "root" || s.presentCPUs != s.desiredCPUs
	}) {
		runLists(later)
		return nil
	}
	return later
}

// gather collects the partitions that must be written, and reports whether there are any.
func (p *partitionPass) gather(jobs []*job) bool {
	for _, j := range jobs {
		if j.isPartition() {
			p.jobs[j.fileKey] = j
		}
	}
	if adopted := p.adoptOrphans(); len(p.jobs) == 0 && !adopted {
		return false
	}
	dirs := map[string]bool{}
	for at, j := range p.jobs {
		if j.target.Owner != ancestorOwner {
			dirs[at.dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		s := &partition{dir: dir, exclusiveJob: p.jobFor(dir, cgroup.ExclusiveFile), partitionJob: p.jobFor(dir, cgroup.PartitionFile)}
		s.shouldExist = !s.exclusiveJob.done && !s.partitionJob.done && !s.exclusiveJob.releasing && !s.partitionJob.releasing
		p.partitions = append(p.partitions, s)
	}
	return true
}

// adoptOrphans adds jobs that end the partitions whose owner was forgotten, so that other cgroups can get their CPUs.
// It reports whether there was such a partition. If the cgroup of the partition was removed, only the cgroups above
// must be written.
func (p *partitionPass) adoptOrphans() bool {
	k := p.k
	k.mu.Lock()
	orphans := k.table.orphans
	k.table.orphans = nil
	k.mu.Unlock()
	for _, at := range orphans {
		if claimed, _ := k.claimForRelease(at); claimed {
			p.jobFor(at.dir, at.key)
		}
	}
	return len(orphans) > 0
}

// hasOrphans reports whether there is a partition whose owner was forgotten.
func (k *Keeper) hasOrphans() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.table.orphans) > 0
}

// jobFor returns the job for a file: the job of the batch, or a new job for the earlier desired value. If there is no
// desired value, it returns a job that is done already.
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
	for _, s := range p.partitions {
		s.read(p.k.tree)
	}
	for _, s := range p.partitions {
		s.reduce()
	}
	p.parents = p.parentJobs()
	p.forEachParent(slices.Backward(p.parents), p.narrowParent)
}

// growPartitions creates partitions, or gives them the CPUs that they should have.
func (p *partitionPass) growPartitions() {
	p.forEachParent(slices.All(p.parents), p.widenParent)
	for _, s := range p.partitions {
		if s.shouldExist {
			p.makePartition(s)
		}
	}
	p.forEachParent(slices.Backward(p.parents), p.trimParent)
}

// postpone separates the jobs that may be written later, because the kernel itself narrows their lists when a partition
// of the batch is made. Such a list only loses CPUs, and only to partitions. It must keep a CPU, because the kernel
// gives the parent's CPUs to a list that becomes empty. postpone never postpones a list that was not verified. It
// postpones no list at all if another list of the batch gets CPUs of a partition, since that list is written before the
// partition exists.
func (p *partitionPass) postpone(jobs []*job) (now, later []*job) {
	var parted cgroup.IDs
	for _, s := range p.partitions {
		if s.shouldExist {
			parted = parted.Union(s.desiredCPUs)
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

// read reads the two files of the partition.
func (s *partition) read(tree *cgroup.Tree) {
	var err error
	read := func(key string, j *job) (text string) {
		if err == nil {
			text, err = tree.Read(s.dir, lifecycle.Unified, key)
		}
		if err == nil && !j.done {
			j.noteFoundText(text)
		}
		return text
	}
	s.kernelText = read(cgroup.PartitionFile, s.partitionJob)
	list := read(cgroup.ExclusiveFile, s.exclusiveJob)
	if err == nil {
		s.presentCPUs, err = cgroup.ParseIDs(list)
	}
	if err == nil && s.shouldExist {
		s.desiredCPUs, err = cgroup.ParseIDs(s.exclusiveJob.text)
	}
	if err != nil {
		s.fail(err)
	}
}

// fail ends the jobs of a partition with an error.
func (s *partition) fail(err error) {
	s.shouldExist = false
	for _, j := range []*job{s.exclusiveJob, s.partitionJob} {
		if !j.done {
			j.fail(err)
		}
	}
}

// keepOriginalAndWrite stores before as the original of the job's file if this is the first write, and writes text.
func (j *job) keepOriginalAndWrite(before, text string) error {
	j.keepOriginal(before)
	return j.row.handle.Write(text)
}

// reduce ends partitions that are no longer desired, and takes CPUs from partitions that should
// have other CPUs.
func (s *partition) reduce() {
	switch {
	case !s.shouldExist:
		s.end()
		return
	case !s.partitionJob.isCurrent() || !s.exclusiveJob.isCurrent():
		s.shouldExist = false
		return
	}
	rest := s.presentCPUs.And(s.desiredCPUs)
	if s.kernelText != "root" && s.kernelText != "member" {
		// The partition is not valid. The kernel frees its reserved CPUs only when the whole
		// partition is undone (seen on 6.12).
		rest = cgroup.IDs{}
	}
	var err error
	if s.kernelText != "member" && rest.Empty() {
		err = s.partitionJob.keepOriginalAndWrite(s.kernelText, "member")
		s.kernelText, s.wrote = "member", true
	}
	if err == nil && rest != s.presentCPUs {
		s.wrote = true
		err = s.exclusiveJob.keepOriginalAndWrite(s.presentCPUs.String(), rest.String())
		s.presentCPUs = rest
	}
	if err != nil {
		s.fail(err)
	}
}

// end turns the partition back into an ordinary cgroup, and then restores the originals.
func (s *partition) end() {
	s.partitionJob.restoreOriginal(s.kernelText)
	s.exclusiveJob.restoreOriginal(s.presentCPUs.String())
	if s.exclusiveJob.done && s.exclusiveJob.err == nil && s.exclusiveJob.releasing {
		s.presentCPUs = cgroup.IDs{}
	}
}

// restoreOriginal restores the original of a partition's file, if the file's row is being
// released.
func (j *job) restoreOriginal(now string) {
	if j.done || !j.isCurrent() {
		return
	}
	back := j.text
	if j.key == cgroup.PartitionFile {
		back, _, _ = strings.Cut(back, " invalid")
	}
	switch {
	case !j.releasing:
		j.finish(Pending, "", "", nil)
	case now == back:
		j.endInForce(Unchanged, now)
	default:
		j.endWith(j.keepOriginalAndWrite(now, back), Applied, back)
	}
}

// makePartition makes a partition, or gives it other CPUs. If the kernel does not accept that, it removes the
// partition.
func (p *partitionPass) makePartition(s *partition) {
	state := Applied
	if !s.wrote && s.kernelText == "root" && s.presentCPUs == s.desiredCPUs {
		state = Unchanged
	}
	err := p.chainError(s)
	if err == nil && s.presentCPUs != s.desiredCPUs {
		err = s.exclusiveJob.keepOriginalAndWrite(s.presentCPUs.String(), s.desiredCPUs.String())
	}
	if err == nil {
		s.presentCPUs = s.desiredCPUs
		if s.kernelText != "root" {
			err = s.partitionJob.keepOriginalAndWrite(s.kernelText, "root")
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
		s.partitionJob.keepFound("root")
		s.exclusiveJob.keepFound(s.desiredCPUs.String())
	}
	s.exclusiveJob.endInForce(state, s.desiredCPUs.String())
	s.partitionJob.endInForce(state, "root")
}

// chainError returns the error of a cgroup above that did not get its CPUs; nil if there is none.
func (p *partitionPass) chainError(s *partition) error {
	for d := path.Dir(s.dir); d != "."; d = path.Dir(d) {
		if err := p.parentErrors[d]; err != nil {
			return err
		}
	}
	return nil
}

// verify reads the files back, and returns an error if the partition is not in force.
func (s *partition) verify(tree *cgroup.Tree) error {
	is, err := s.partitionJob.row.handle.Read()
	if err != nil {
		return err
	}
	if s.kernelText = is; is != "root" {
		return s.partitionJob.mismatchError(is)
	}
	list, err := tree.Effective(s.dir, lifecycle.CPUSetCPUs)
	if err != nil {
		return err
	}
	if got, err := cgroup.ParseIDs(list); err != nil || got != s.desiredCPUs {
		return s.exclusiveJob.row.handle.OpError("verify", s.desiredCPUs.String(), fmt.Errorf("the partition has CPUs %q", list))
	}
	return nil
}

// undo removes a partition that could not be made completely. The cpusets of all containers are correct without the
// partition.
func (s *partition) undo(k *Keeper) {
	if s.kernelText != "member" {
		_ = s.partitionJob.row.handle.Write("member") // makePartition reports its earlier error
	}
	k.mu.Lock()
	before, _ := s.exclusiveJob.row.history.originalText()
	k.mu.Unlock()
	if s.presentCPUs.String() != before && s.exclusiveJob.row.handle.Write(before) == nil {
		s.presentCPUs = cgroup.IDs{}
	}
}

// isInvalidated reports whether the kernel's text means that a partition of the agent has become invalid. ours is the
// text that the agent wrote.
func isInvalidated(p fileKey, text, ours string) bool {
	return p.key == cgroup.PartitionFile && ours == "root" && strings.HasPrefix(text, "root invalid")
}
