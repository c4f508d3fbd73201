package kernel

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// This file models cgroups themselves: controllers, threaded
// cgroups, tasks.

// controllers in the order the kernel reports them.
var controllers = map[cgroup.Version][]string{
	cgroup.V1: {"cpuset", "cpu", "blkio", "memory", "hugetlb", "pids"},
	cgroup.V2: {"cpuset", "cpu", "io", "memory", "hugetlb", "pids"},
}

// threadable reports whether a controller can control the threads of a process separately.
func threadable(controller string) bool {
	return controller == "cpuset" || controller == "cpu" || controller == "pids"
}

// task is a task. In version 2 it is in one cgroup, under the key "".
type task struct {
	pid   int
	in    map[string]*group // by controller
	usage map[*group]int64  // memory that the task allocated while in that cgroup
}

// Spawn starts a task at the root.
func (f *Cgroups) Spawn() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &task{pid: 1000 + len(f.procs), in: map[string]*group{}, usage: map[*group]int64{}}
	for f.procs[p.pid] != nil {
		p.pid++
	}
	for _, c := range f.hierarchies() {
		p.in[c] = f.root
	}
	f.procs[p.pid] = p
	return p.pid, nil
}

func (f *Cgroups) hierarchies() []string {
	if f.version == cgroup.V1 {
		return controllers[cgroup.V1]
	}
	return []string{""}
}

// memoryOf returns the cgroup to which a task's memory is charged.
func (f *Cgroups) memoryOf(p *task) *group {
	if f.version == cgroup.V1 {
		return p.in["memory"]
	}
	return p.in[""]
}

// Grow makes a task use memory.
func (f *Cgroups) Grow(pid int, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.procs[pid]
	if p == nil {
		return syscall.ESRCH
	}
	p.usage[f.memoryOf(p)] += bytes
	return nil
}

// Kill ends a task. It is no error if the task has ended.
func (f *Cgroups) Kill(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.procs, pid)
	return nil
}

// AwaitEnd returns an error while a task is alive.
func (f *Cgroups) AwaitEnd(pid int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.procs[pid] != nil {
		return syscall.ETIMEDOUT
	}
	return nil
}

// SetTasks puts n tasks into a cgroup. In version 1 a cgroup without CPUs or memory nodes refuses them (ENOSPC), in
// version 2 one that enables controllers for its children does (EBUSY).
func (f *Cgroups) SetTasks(dir string, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	if n > 0 {
		if err := f.admits(g, "cpuset"); err != nil {
			return pathError("write", dir, err)
		}
	}
	g.tasks = n
	return nil
}

// admits returns why a cgroup accepts no task.
func (f *Cgroups) admits(g *group, controller string) error {
	if f.version == cgroup.V1 {
		if controller == "cpuset" && (g.cpus.Empty() || g.mems.Empty()) {
			return syscall.ENOSPC
		}
		return nil
	}
	switch {
	case !f.validDomain(g.domain()):
		return syscall.EOPNOTSUPP
	case g.parent == nil, g.threaded, f.canBeThreadRoot(g):
		return nil
	case len(g.subtree) > 0:
		return syscall.EBUSY
	}
	return nil
}

// inhabited reports whether tasks are in g itself. In version 1 it counts those of a controller, "" for any.
func (f *Cgroups) inhabited(g *group, controller string) bool {
	if g.tasks > 0 {
		return true
	}
	for _, p := range f.procs {
		for c, in := range p.in {
			if in == g && (controller == "" || c == "" || c == controller) {
				return true
			}
		}
	}
	return false
}

// populated reports whether tasks are in g or below.
func (f *Cgroups) populated(g *group, controller string) bool {
	if f.inhabited(g, controller) {
		return true
	}
	for _, c := range g.children {
		if f.populated(c, controller) {
			return true
		}
	}
	return false
}

func showProcs(controller string) func(*Cgroups, *group) string {
	return func(f *Cgroups, g *group) string {
		var pids []int
		for _, p := range f.procs {
			if p.in[controller] == g {
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

// showThreads shows the threads of a cgroup: one for each of its processes, and the tasks of SetTasks, whose numbers
// are unique to the cgroup.
func showThreads(controller string) func(*Cgroups, *group) string {
	procs := showProcs(controller)
	return func(f *Cgroups, g *group) string {
		ids := strings.Fields(procs(f, g))
		for i := range g.tasks {
			ids = append(ids, strconv.Itoa(1_000_000+g.serial*1000+i))
		}
		return strings.Join(ids, "\n")
	}
}

func setProcs(controller string) func(*Cgroups, *group, string) error {
	return func(f *Cgroups, g *group, text string) error {
		pid, err := kernelInt32(strip(text))
		if err != nil || pid < 0 {
			return syscall.EINVAL
		}
		p := f.procs[int(pid)]
		if p == nil {
			return syscall.ESRCH
		}
		if p.in[controller] == g {
			return nil
		}
		if err := f.admits(g, controller); err != nil {
			return err
		}
		p.in[controller] = g
		return nil
	}
}

// coreFile returns the model of a file that every cgroup of version 1 has.
func coreFile(controller, name string) (fileModel, bool) {
	switch name {
	case "cgroup.procs":
		return fileModel{show: showProcs(controller), set: setProcs(controller), lines: true}, true
	case "tasks":
		return fileModel{show: showThreads(controller), set: setProcs(controller), lines: true}, true
	case "cgroup.clone_children":
		return fileModel{show: func(_ *Cgroups, g *group) string { return bit(g.clone) }, set: setClone}, true
	}
	return fileModel{}, false
}

// domain returns the cgroup whose resources a threaded cgroup shares.
func (g *group) domain() *group {
	for g.threaded {
		g = g.parent
	}
	return g
}

func (f *Cgroups) threadRoot(g *group) bool {
	if g.threaded {
		return false
	}
	for _, c := range g.children {
		if c.threaded {
			return true
		}
	}
	return g.parent != nil && f.inhabited(g, "") && slices.ContainsFunc(controllers[cgroup.V2], func(c string) bool { return threadable(c) && g.subtree[c] })
}

func (g *group) givesDomain() bool {
	for c := range g.subtree {
		if !threadable(c) {
			return true
		}
	}
	return false
}

func (f *Cgroups) canBeThreadRoot(g *group) bool {
	switch {
	case g.parent == nil:
		return true
	case g.threaded, g.givesDomain():
		return false
	}
	for _, c := range g.children {
		if !c.threaded && f.populated(c, "") {
			return false
		}
	}
	return true
}

// validDomain reports whether a cgroup can hold processes: it must not be below a threaded cgroup.
func (f *Cgroups) validDomain(g *group) bool {
	if g.threaded {
		return false
	}
	for g = g.parent; g != nil; g = g.parent {
		if g.threaded || g.parent != nil && f.threadRoot(g) {
			return false
		}
	}
	return true
}

func showType(f *Cgroups, g *group) string {
	switch {
	case g.threaded:
		return "threaded"
	case !f.validDomain(g):
		return "domain invalid"
	case f.threadRoot(g):
		return "domain threaded"
	}
	return "domain"
}

// setType makes a cgroup threaded, which cannot be undone.
func setType(f *Cgroups, g *group, text string) error {
	if strip(text) != "threaded" {
		return syscall.EINVAL
	}
	above := g.parent.domain()
	switch {
	case g.threaded:
		return nil
	case f.populated(g, ""), g.givesDomain(), !f.validDomain(above), !f.canBeThreadRoot(above):
		return syscall.EOPNOTSUPP
	}
	g.threaded = true
	return nil
}

// has returns the controllers of a cgroup of version 2.
func (f *Cgroups) has(g *group) []string {
	if g.parent == nil {
		return controllers[cgroup.V2]
	}
	return slices.DeleteFunc(slices.Clone(controllers[cgroup.V2]), func(c string) bool { return !g.parent.subtree[c] || g.threaded && !threadable(c) })
}

func showControllers(f *Cgroups, g *group) string { return strings.Join(f.has(g), " ") }

func showSubtree(_ *Cgroups, g *group) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(controllers[cgroup.V2]), func(c string) bool { return !g.subtree[c] }), " ")
}

// setSubtree parses a text such as "+cpu -memory".
func setSubtree(f *Cgroups, g *group, text string) error {
	want := map[string]bool{}
	for word := range strings.SplitSeq(strip(text), " ") {
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
	return f.control(g, want)
}

// control enables or disables controllers for the children of a cgroup of version 2.
func (f *Cgroups) control(g *group, want map[string]bool) error {
	enable, domain := false, false
	for _, c := range controllers[cgroup.V2] {
		on, named := want[c]
		switch {
		case !named || on == g.subtree[c]:
			delete(want, c)
		case on && !slices.Contains(f.has(g), c):
			return syscall.ENOENT
		case on:
			enable, domain = true, domain || !threadable(c)
		case g.passesOn(c):
			return syscall.EBUSY
		}
	}
	if enable {
		if err := f.mayEnable(g, domain); err != nil {
			return err
		}
	}
	for c, on := range want {
		if on {
			g.subtree[c] = true
			continue
		}
		delete(g.subtree, c)
		for _, child := range g.children {
			f.reset(child, c)
		}
	}
	return nil
}

// passesOn reports whether a child enables a controller for its own children.
func (g *group) passesOn(controller string) bool {
	for _, c := range g.children {
		if c.subtree[controller] {
			return true
		}
	}
	return false
}

func (f *Cgroups) mayEnable(g *group, domain bool) error {
	switch {
	case !f.validDomain(g.domain()):
		return syscall.EOPNOTSUPP
	case g.parent == nil:
		return nil
	case domain && (f.threadRoot(g) || g.threaded):
		return syscall.EOPNOTSUPP
	case !domain && (g.threaded || f.canBeThreadRoot(g)):
		return nil
	case f.inhabited(g, ""):
		return syscall.EBUSY
	}
	return nil
}
