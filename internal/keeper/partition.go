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

// ancestorOwner is the Target.Owner of values that the keeper writes to cgroups above a partition. These cgroups belong
// to no single pod.
const ancestorOwner = "partitions"

// ErrInPartition is the reason why a cgroup cannot be a cpuset partition: another program has made a parent cgroup a
// partition.
var ErrInPartition = errors.New("the agent makes no cpuset partition below another partition")

// partition is a cgroup that should become a remote cpuset partition, or become an ordinary cgroup again. The keeper
// writes two files of the cgroup: cpuset.cpus.exclusive and cpuset.cpus.partition. In this source file, a parent cgroup
// is any cgroup above a partition. Every parent cgroup must reserve the CPUs of all partitions below it. The keeper
// therefore writes the union of these CPUs to cpuset.cpus.exclusive of the parent.
type partition struct {
	dir string // the cgroup's directory, relative to the root of the cgroup tree
	// exclusiveJob is the job for the file cpuset.cpus.exclusive, and partitionJob for cpuset.cpus.partition. A job
	// has already ended if there is no desired value for its file.
	exclusiveJob, partitionJob *job
	desiredCPUs, presentCPUs   cgroup.IDs
	shouldExist                bool   // the cgroup should be a partition; false means that it becomes an ordinary cgroup again
	kernelText                 string // the kernel's text in cpuset.cpus.partition, such as "root" or "member"
	wrote                      bool   // the keeper has written one of the two files in this pass
}

// partitionPass is the work on all partitions of a batch. The caller holds Keeper.listsMu.
//
// The order: first, partitions end or lose CPUs. Then the sets of the parent cgroups shrink, from the bottom, so that
// the CPUs are free for other partitions. Then runSets writes the lists of the batch. It must write them before new
// partitions exist: if a partition takes all CPUs of another cgroup, the kernel gives that cgroup all CPUs of its
// parent, including CPUs of other containers. Then the sets of the parent cgroups grow, from the top. Last, the
// partitions grow.
type partitionPass struct {
	k              *Keeper
	jobs           map[fileKey]*job
	partitions     []*partition
	parents        []*job           // see parentJobs; set by freeLostCPUs
	parentErrors   map[string]error // by directory: why a parent cgroup did not get its CPUs
	writtenParents map[string]bool  // by directory: the parent cgroups that were written
}

// runSets runs the jobs for cpuset partitions and for lists. If urgent is true, it does not run the jobs for some
// lists, and returns these jobs. These are lists from which the new partitions take the same CPUs as the write would.
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

// gather collects the partitions of the batch, and reports whether anything must be written for partitions.
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

// adoptOrphans adds jobs that end the partitions whose owner was forgotten (see Keeper.Forget). Other cgroups can then
// get the CPUs of these partitions. adoptOrphans returns true if there was such a partition, even if the partition's
// cgroup was removed. The parent cgroups must be written in both cases.
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

// jobFor returns the job for a file of a partition. If the batch has no job for the file, jobFor makes a job with the
// value that was recorded earlier. If the file has no desired value, it returns a job that has already ended.
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

// freeLostCPUs takes from partitions the CPUs that they should lose, and then takes these CPUs from the parent cgroups.
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

// growPartitions creates the new partitions, and gives all partitions the CPUs that they should have. For this, it
// first gives these CPUs to the parent cgroups.
func (p *partitionPass) growPartitions() {
	p.forEachParent(slices.All(p.parents), p.widenParent)
	for _, s := range p.partitions {
		if s.shouldExist {
			p.makePartition(s)
		}
	}
	p.forEachParent(slices.Backward(p.parents), p.trimParent)
}

// postpone returns the jobs that must run now, and the CPU lists that can be written later. A list can be written later
// if its cgroup only loses CPUs, and new partitions of the batch get all the lost CPUs: the kernel then takes these
// CPUs from the cgroup even without the write. At least one CPU must be left in the list, because otherwise the kernel
// lets the cgroup use the parent's CPUs. A list that the keeper did not verify is never postponed. If a list of the
// batch gets CPUs of a partition, postpone postpones no list, because that list is written before the partition exists.
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
		// parse returns no errors, because both texts are valid lists: verifiedText was in the kernel, and the
		// keeper encoded text.
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
			j.detectDrift(text)
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

// fail ends both jobs of a partition with an error.
func (s *partition) fail(err error) {
	s.shouldExist = false
	for _, j := range []*job{s.exclusiveJob, s.partitionJob} {
		if !j.done {
			j.fail(err)
		}
	}
}

// storeOriginalAndWrite writes a text to the job's file. If this is the first write of the file, it first stores the
// present text of the file as the original.
func (j *job) storeOriginalAndWrite(present, text string) error {
	j.storeOriginal(present)
	return j.row.handle.Write(text)
}

// reduce ends a partition that is no longer desired. From a partition that should exist, it takes the
// CPUs that the partition should lose.
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
		// The partition is not valid. The kernel frees the CPUs that the partition reserved only
		// when the cgroup is an ordinary cgroup again (seen on Linux 6.12).
		rest = cgroup.IDs{}
	}
	var err error
	if s.kernelText != "member" && rest.Empty() {
		err = s.partitionJob.storeOriginalAndWrite(s.kernelText, "member")
		s.kernelText, s.wrote = "member", true
	}
	if err == nil && rest != s.presentCPUs {
		s.wrote = true
		err = s.exclusiveJob.storeOriginalAndWrite(s.presentCPUs.String(), rest.String())
		s.presentCPUs = rest
	}
	if err != nil {
		s.fail(err)
	}
}

// end makes the partition an ordinary cgroup again, and restores the originals of both files.
func (s *partition) end() {
	s.partitionJob.restoreOriginal(s.kernelText)
	s.exclusiveJob.restoreOriginal(s.presentCPUs.String())
	if s.exclusiveJob.done && s.exclusiveJob.err == nil && s.exclusiveJob.releasing {
		s.presentCPUs = cgroup.IDs{}
	}
}

// restoreOriginal restores the original of a partition's file, if the keeper is releasing the file's row. The parameter
// present is the text that the file has now.
func (j *job) restoreOriginal(present string) {
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
	case present == back:
		j.endInForce(Unchanged, present)
	default:
		j.endWith(j.storeOriginalAndWrite(present, back), Applied, back)
	}
}

// makePartition makes a cgroup a partition with the desired CPUs, or changes the CPUs of a partition. If the kernel
// refuses a write, makePartition makes the cgroup an ordinary cgroup again.
func (p *partitionPass) makePartition(s *partition) {
	state := Applied
	if !s.wrote && s.kernelText == "root" && s.presentCPUs == s.desiredCPUs {
		state = Unchanged
	}
	err := p.parentError(s)
	if err == nil && s.presentCPUs != s.desiredCPUs {
		err = s.exclusiveJob.storeOriginalAndWrite(s.presentCPUs.String(), s.desiredCPUs.String())
	}
	if err == nil {
		s.presentCPUs = s.desiredCPUs
		if s.kernelText != "root" {
			err = s.partitionJob.storeOriginalAndWrite(s.kernelText, "root")
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
		s.partitionJob.storeFoundAsOriginal("root")
		s.exclusiveJob.storeFoundAsOriginal(s.desiredCPUs.String())
	}
	s.exclusiveJob.endInForce(state, s.desiredCPUs.String())
	s.partitionJob.endInForce(state, "root")
}

// parentError returns the error of the nearest parent cgroup that did not get its CPUs; nil if all got their CPUs.
func (p *partitionPass) parentError(s *partition) error {
	for d := path.Dir(s.dir); d != "."; d = path.Dir(d) {
		if err := p.parentErrors[d]; err != nil {
			return err
		}
	}
	return nil
}

// verify reads the file cpuset.cpus.partition and the effective CPUs of a partition. It returns an error if the kernel
// has not made the partition, or the partition has other CPUs.
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
		return s.exclusiveJob.row.handle.OpError("verify", s.desiredCPUs.String(), fmt.Errorf("the partition has the CPUs %q instead", list))
	}
	return nil
}

// undo makes a cgroup an ordinary cgroup again, after makePartition failed. The containers stay separated even so,
// because the keeper has already written their lists to cpuset.cpus.
func (s *partition) undo(k *Keeper) {
	if s.kernelText != "member" {
		_ = s.partitionJob.row.handle.Write("member") // makePartition already reports another error
	}
	k.mu.Lock()
	before, _ := s.exclusiveJob.row.history.originalText()
	k.mu.Unlock()
	if s.presentCPUs.String() != before && s.exclusiveJob.row.handle.Write(before) == nil {
		s.presentCPUs = cgroup.IDs{}
	}
}

// isInvalidated reports whether the kernel's text means that a partition of the agent has become invalid. agentText is
// the text that the agent wrote.
func isInvalidated(p fileKey, text, agentText string) bool {
	return p.key == cgroup.PartitionFile && agentText == "root" && strings.HasPrefix(text, "root invalid")
}
