package kernel

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file simulates controllers, threaded cgroups and tasks.

// controllers has the controllers in the order in which the kernel reports them.
var controllers = map[cgroup.Version][]string{
	cgroup.V1: {"cpuset", "cpu", "blkio", "memory", "hugetlb", "pids"},
	cgroup.V2: {"cpuset", "cpu", "io", "memory", "hugetlb", "pids"},
}

// supportsThreads reports whether a controller supports threaded cgroups.
func supportsThreads(controller string) bool {
	return controller == "cpuset" || controller == "cpu" || controller == "pids"
}

// task is a process.
type task struct {
	pid      int
	cgroupIn map[string]*group // the task's cgroup in each controller's hierarchy; in version 2 the only key is ""
	usage    map[*group]int64  // by cgroup: the bytes that the task allocated while it was in the cgroup
}

// Spawn starts a task in the root cgroup.
func (f *Cgroups) Spawn() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &task{pid: 1000 + len(f.tasksByPID), cgroupIn: map[string]*group{}, usage: map[*group]int64{}}
	for f.tasksByPID[p.pid] != nil {
		p.pid++
	}
	for _, c := range f.hierarchies() {
		p.cgroupIn[c] = f.root
	}
	f.tasksByPID[p.pid] = p
	return p.pid, nil
}

// hierarchies returns the keys of task.cgroupIn: in version 1 the controllers, in version 2 only "".
func (f *Cgroups) hierarchies() []string {
	if f.version == cgroup.V1 {
		return controllers[cgroup.V1]
	}
	return []string{""}
}

// memoryGroup returns the cgroup to which a task's memory is charged.
func (f *Cgroups) memoryGroup(p *task) *group {
	if f.version == cgroup.V1 {
		return p.cgroupIn["memory"]
	}
	return p.cgroupIn[""]
}

// Grow makes a task allocate memory.
func (f *Cgroups) Grow(pid int, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.tasksByPID[pid]
	if p == nil {
		return syscall.ESRCH
	}
	p.usage[f.memoryGroup(p)] += bytes
	return nil
}

// Kill ends a task. It returns no error if the task has already ended.
func (f *Cgroups) Kill(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tasksByPID, pid)
	return nil
}

// AwaitEnd returns an error if a task has not ended. It does not wait, because Kill ends a task at once.
func (f *Cgroups) AwaitEnd(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tasksByPID[pid] != nil {
		return syscall.ETIMEDOUT
	}
	return nil
}

// SetTasks sets how many tasks a cgroup has in addition to the tasks of Spawn. Like the kernel, version 1 refuses tasks
// in a cgroup without CPUs or memory nodes (ENOSPC). Version 2 refuses tasks in a cgroup that enables controllers for
// its children (EBUSY).
func (f *Cgroups) SetTasks(dir string, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.findGroup(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	if n > 0 {
		if err := f.checkAdmits(g, "cpuset"); err != nil {
			return pathError("write", dir, err)
		}
	}
	g.tasks = n
	return nil
}

// checkAdmits returns the error with which the kernel refuses to move a task into a cgroup; nil if the kernel accepts
// the task. controller is the hierarchy in version 1.
func (f *Cgroups) checkAdmits(g *group, controller string) error {
	if f.version == cgroup.V1 {
		if controller == "cpuset" && (g.cpus.Empty() || g.mems.Empty()) {
			return syscall.ENOSPC
		}
		return nil
	}
	switch {
	case !f.validDomain(g.nearestDomain()):
		return syscall.EOPNOTSUPP
	case g.parent == nil, g.threaded, f.canBeThreadRoot(g):
		return nil
	case len(g.childControllers) > 0:
		return syscall.EBUSY
	}
	return nil
}

// hasTasks reports whether g itself has tasks in a controller's hierarchy; "" means any controller.
func (f *Cgroups) hasTasks(g *group, controller string) bool {
	if g.tasks > 0 {
		return true
	}
	for _, p := range f.tasksByPID {
		for c, in := range p.cgroupIn {
			if in == g && (controller == "" || c == "" || c == controller) {
				return true
			}
		}
	}
	return false
}

// isPopulated reports whether g or a cgroup below it has tasks in a controller's hierarchy.
func (f *Cgroups) isPopulated(g *group, controller string) bool {
	if f.hasTasks(g, controller) {
		return true
	}
	for _, c := range g.children {
		if f.isPopulated(c, controller) {
			return true
		}
	}
	return false
}

// showProcs returns a function that shows the pids in a cgroup of a controller's hierarchy.
func showProcs(controller string) func(*Cgroups, *group) string {
	return func(f *Cgroups, g *group) string {
		var pids []int
		for _, p := range f.tasksByPID {
			if p.cgroupIn[controller] == g {
				pids = append(pids, p.pid)
			}
		}
		slices.Sort(pids)
		var out []string
		for _, pid := range pids {
			out = append(out, strconv.Itoa(pid))
		}
		return strings.Join(out, "\n")
	}
}

// showThreads returns a function that shows the threads of a cgroup: one for each process, and one for each task of
// SetTasks. The ids of the tasks of SetTasks are invented.
func showThreads(controller string) func(*Cgroups, *group) string {
	procs := showProcs(controller)
	return func(f *Cgroups, g *group) string {
		ids := strings.Fields(procs(f, g))
		for i := range g.tasks {
			ids = append(ids, strconv.Itoa(1_000_000+g.uniqueNumber*1000+i))
		}
		return strings.Join(ids, "\n")
	}
}

// setProcs returns a function that moves a process into a cgroup of a controller's hierarchy.
func setProcs(controller string) func(*Cgroups, *group, string) error {
	return func(f *Cgroups, g *group, text string) error {
		pid, err := kernelInt32(trimBlanks(text))
		if err != nil || pid < 0 {
			return syscall.EINVAL
		}
		p := f.tasksByPID[int(pid)]
		if p == nil {
			return syscall.ESRCH
		}
		if p.cgroupIn[controller] == g {
			return nil
		}
		if err := f.checkAdmits(g, controller); err != nil {
			return err
		}
		p.cgroupIn[controller] = g
		return nil
	}
}

// coreFileV1 returns the model of a file that cgroups of version 1 have in each controller's hierarchy.
func coreFileV1(controller, name string) (fileModel, bool) {
	switch name {
	case "cgroup.procs":
		return fileModel{show: showProcs(controller), set: setProcs(controller), lines: true}, true
	case "tasks":
		return fileModel{show: showThreads(controller), set: setProcs(controller), lines: true}, true
	case "cgroup.clone_children":
		return fileModel{show: func(_ *Cgroups, g *group) string { return formatBool(g.cloneChildren) }, set: setClone}, true
	}
	return fileModel{}, false
}

// nearestDomain returns the nearest cgroup that is not threaded, which is g or an ancestor of g.
func (g *group) nearestDomain() *group {
	for g.threaded {
		g = g.parent
	}
	return g
}

// isThreadRoot reports whether g is the root of a threaded subtree (the kernel's cgroup_is_thread_root). g is such a
// root if it is not threaded and has a threaded child. A cgroup that is neither threaded nor the root cgroup is also
// such a root if it has tasks and enables a controller that supports threads.
func (f *Cgroups) isThreadRoot(g *group) bool {
	if g.threaded {
		return false
	}
	for _, c := range g.children {
		if c.threaded {
			return true
		}
	}
	return g.parent != nil && f.hasTasks(g, "") && slices.ContainsFunc(controllers[cgroup.V2], func(c string) bool { return supportsThreads(c) && g.childControllers[c] })
}

// enablesDomainController reports whether g enables, for its children, a controller that does not support threads.
func (g *group) enablesDomainController() bool {
	for c := range g.childControllers {
		if !supportsThreads(c) {
			return true
		}
	}
	return false
}

// canBeThreadRoot reports whether g can become the root of a threaded subtree (the kernel's cgroup_can_be_thread_root).
func (f *Cgroups) canBeThreadRoot(g *group) bool {
	switch {
	case g.parent == nil:
		return true
	case g.threaded, g.enablesDomainController():
		return false
	}
	for _, c := range g.children {
		if !c.threaded && f.isPopulated(c, "") {
			return false
		}
	}
	return true
}

// validDomain reports whether a cgroup is a valid domain, which can have processes. A domain below a threaded cgroup,
// or below the root of a threaded subtree, is not valid.
func (f *Cgroups) validDomain(g *group) bool {
	if g.threaded {
		return false
	}
	for g = g.parent; g != nil; g = g.parent {
		if g.threaded || g.parent != nil && f.isThreadRoot(g) {
			return false
		}
	}
	return true
}

// showType shows cgroup.type.
func showType(f *Cgroups, g *group) string {
	switch {
	case g.threaded:
		return "threaded"
	case !f.validDomain(g):
		return "domain invalid"
	case f.isThreadRoot(g):
		return "domain threaded"
	}
	return "domain"
}

// setType makes a cgroup threaded, which cannot be undone.
func setType(f *Cgroups, g *group, text string) error {
	if trimBlanks(text) != "threaded" {
		return syscall.EINVAL
	}
	above := g.parent.nearestDomain()
	switch {
	case g.threaded:
		return nil
	case f.isPopulated(g, ""), g.enablesDomainController(), !f.validDomain(above), !f.canBeThreadRoot(above):
		return syscall.EOPNOTSUPP
	}
	g.threaded = true
	return nil
}

// availableControllers returns the controllers that are enabled for a cgroup of version 2 (cgroup.controllers).
func (f *Cgroups) availableControllers(g *group) []string {
	if g.parent == nil {
		return controllers[cgroup.V2]
	}
	return slices.DeleteFunc(slices.Clone(controllers[cgroup.V2]), func(c string) bool { return !g.parent.childControllers[c] || g.threaded && !supportsThreads(c) })
}

// showControllers shows cgroup.controllers.
func showControllers(f *Cgroups, g *group) string {
	return strings.Join(f.availableControllers(g), " ")
}

// showSubtree shows cgroup.subtree_control.
func showSubtree(_ *Cgroups, g *group) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(controllers[cgroup.V2]), func(c string) bool { return !g.childControllers[c] }), " ")
}

// setSubtree sets cgroup.subtree_control. The text says which controllers to enable and to disable, such as "+cpu
// -memory".
func setSubtree(f *Cgroups, g *group, text string) error {
	want := map[string]bool{}
	for word := range strings.SplitSeq(trimBlanks(text), " ") {
		switch {
		case word == "":
		case !slices.Contains(controllers[cgroup.V2], word[1:]):
			return syscall.EINVAL
		case word[0] == '+' || word[0] == '-':
			want[word[1:]] = word[0] == '+'
		default:
			return syscall.EINVAL
		}
	}
	return f.setControllers(g, want)
}

// setControllers enables or disables controllers for the children of a cgroup of version 2. want has true for each
// controller to enable, and false for each controller to disable.
func (f *Cgroups) setControllers(g *group, want map[string]bool) error {
	enable, domain := false, false
	for _, c := range controllers[cgroup.V2] {
		on, named := want[c]
		switch {
		case !named || on == g.childControllers[c]:
			delete(want, c)
		case on && !slices.Contains(f.availableControllers(g), c):
			return syscall.ENOENT
		case on:
			enable, domain = true, domain || !supportsThreads(c)
		case g.childEnables(c):
			return syscall.EBUSY
		}
	}
	if enable {
		if err := f.checkEnable(g, domain); err != nil {
			return err
		}
	}
	for c, on := range want {
		if on {
			g.childControllers[c] = true
			continue
		}
		delete(g.childControllers, c)
		for _, child := range g.children {
			f.resetController(child, c)
		}
	}
	return nil
}

// childEnables reports whether a child of g enables a controller for its own children.
func (g *group) childEnables(controller string) bool {
	for _, c := range g.children {
		if c.childControllers[controller] {
			return true
		}
	}
	return false
}

// checkEnable returns the error with which the kernel refuses to enable controllers for the children of g; nil if the
// kernel enables them. domain means that one of the controllers does not support threads.
func (f *Cgroups) checkEnable(g *group, domain bool) error {
	switch {
	case !f.validDomain(g.nearestDomain()):
		return syscall.EOPNOTSUPP
	case g.parent == nil:
		return nil
	case domain && (f.isThreadRoot(g) || g.threaded):
		return syscall.EOPNOTSUPP
	case !domain && (g.threaded || f.canBeThreadRoot(g)):
		return nil
	case f.hasTasks(g, ""):
		return syscall.EBUSY
	}
	return nil
}
