package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Cgroups is a cgroup tree in memory. The files of the tree behave like the files of the kernel. The test in
// test/kernel/script compares the files with recordings of the kernels 6.1 (versions 1 and 2) and 6.12 (version 2). The
// file known.go of the test lists the intended differences with their reasons.
//
// Cgroups does not simulate real-time scheduling. It simulates reclaim and swap only at a write to memory.reclaim, and
// only if SetTiers has added memory nodes.
type Cgroups struct {
	version cgroup.Version
	cpus    cgroup.IDs // the online CPUs
	mems    cgroup.IDs // the nodes with memory

	mu            sync.Mutex
	root          *group
	possible      cgroup.IDs      // the possible CPUs: the online CPUs, and the CPUs that SetOnline can bring online
	created       int             // the number of cgroups that were made so far
	release       [2]int          // the major and minor number of the kernel's release
	devices       map[string]bool // the block devices, as "major:minor"
	addedFiles    map[string]bool // the files that AddOptionalFiles added
	hasPartitions bool            // a write has requested a partition; until then there can be no remote partitions
	tasksByPID    map[int]*task
	tiers         tiers
	onWrite       func(path, value string) // the function of OnWrite; may be nil
	// listeners is replaced and never modified, so that a goroutine can read a copy without the lock.
	listeners  []*listener
	writeFault func(path, value string) error // the function of FailWrites; may be nil
}

// group is one cgroup, in all controllers.
type group struct {
	parent       *group
	name         string
	children     map[string]*group
	tasks        int // the number of tasks from SetTasks, which are in all controllers
	uniqueNumber int // the thread ids that showThreads invents contain this number

	// The fields of version 2.
	childControllers map[string]bool // the controllers in cgroup.subtree_control: they are enabled for the children
	threaded         bool            // cgroup.type is "threaded"
	partition        partition

	cpuState
	cpusetState
	memoryState
	otherState
}

// NewCgroups makes a tree that has only the root, on a machine with the given online CPUs and memory nodes (kernel
// lists). In version 2, the root enables all controllers for its children, because systemd and runtimes do this.
func NewCgroups(version cgroup.Version, cpus, mems string) (*Cgroups, error) {
	c, errC := cgroup.ParseIDs(cpus)
	m, errM := cgroup.ParseIDs(mems)
	if err := errors.Join(errC, errM); err != nil {
		return nil, fmt.Errorf("simulated cgroups: %w", err)
	}
	if c.Empty() || m.Empty() || (version != cgroup.V1 && version != cgroup.V2) {
		return nil, fmt.Errorf("simulated cgroups: need version 1 or 2, a CPU and a memory node, not version %d, CPUs %q and memory nodes %q", version, cpus, mems)
	}
	f := &Cgroups{version: version, cpus: c, mems: m, possible: c, release: [2]int{6, 1}, tasksByPID: map[int]*task{}}
	f.root = f.newGroup(nil, "")
	f.root.cpus, f.root.mems = c, m
	for _, name := range controllers[version] {
		f.root.childControllers[name] = true
	}
	return f, nil
}

// newGroup returns a cgroup with the values of a new cgroup. The caller adds it to the parent's children.
func (f *Cgroups) newGroup(parent *group, name string) *group {
	g := &group{parent: parent, name: name, children: map[string]*group{}, childControllers: map[string]bool{}}
	f.created++
	g.uniqueNumber = f.created
	for _, c := range controllers[f.version] {
		f.resetController(g, c)
	}
	if parent != nil && f.version == cgroup.V1 && parent.cloneChildren {
		g.cpus, g.mems, g.cloneChildren = parent.cpus, parent.mems, true
	}
	return g
}

// resetController sets a cgroup's values in a controller to the values of a new cgroup.
func (f *Cgroups) resetController(g *group, controller string) {
	switch controller {
	case "cpu":
		g.cpuState = cpuState{shares: f.defaultShares(), bandwidth: bandwidth{quota: noQuota, period: 100000 * microsecond}}
	case "cpuset":
		g.cpusetState, g.partition = cpusetState{schedLoadBalance: true, relaxDomainLevel: -1}, partition{}
	case "memory":
		n := cgroup.UnlimitedBytes()
		// The memory in use stays the same.
		g.memoryState = memoryState{limit: n, swap: n, high: n, swapHigh: n, softLimit: n, swappiness: 60, usage: g.usage, memoryOnNodes: g.memoryOnNodes}
	default:
		g.resetOther(controller)
	}
}

// defaultShares returns the cpu.shares (version 1) or the cpu.weight (version 2) of a new cgroup.
func (f *Cgroups) defaultShares() int64 {
	if f.version == cgroup.V1 {
		return 1024
	}
	return 100
}

// kernelSince reports whether the simulated kernel is 6.minor or later.
func (f *Cgroups) kernelSince(minor int) bool {
	return f.release[0] > 6 || f.release[0] == 6 && f.release[1] >= minor
}

// SetRelease sets the release of the simulated kernel, in the form of uname -r. The default is 6.1.
func (f *Cgroups) SetRelease(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("simulated cgroups: release %q: %w", release, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release = [2]int{major, minor}
	return nil
}

// AddDevice adds a block device to the machine. number has the device's major and minor number, such as "254:0".
func (f *Cgroups) AddDevice(number string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.devices == nil {
		f.devices = map[string]bool{}
	}
	f.devices[number] = true
}

// AddOptionalFiles adds files that not every kernel has, such as cpu.bvt_warp_ns.
func (f *Cgroups) AddOptionalFiles(files ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range files {
		kind, ok := filesV2[name]
		if !ok {
			controller, _, _ := strings.Cut(name, ".")
			kind, ok = filesV1[controller][name]
		}
		if !ok || !kind.optional {
			return fmt.Errorf("simulated cgroups: the file %q cannot be added, because it is not simulated or every kernel has it", name)
		}
		if f.addedFiles == nil {
			f.addedFiles = map[string]bool{}
		}
		f.addedFiles[name] = true
	}
	return nil
}

// OnWrite sets a function that is called after each accepted write. Cgroups does not hold its lock during the call. So
// the function may read the tree, and several goroutines may call it concurrently.
func (f *Cgroups) OnWrite(call func(path, value string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onWrite = call
}

// FailWrites sets a function that is called before each write. If the function returns an error, the write fails with
// this error.
func (f *Cgroups) FailWrites(call func(path, value string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writeFault = call
}

// Mkdir makes a cgroup like mkdir(2). In version 1, it makes the cgroup in the hierarchies of all controllers, and the
// new cpuset has no CPUs and memory nodes. If the parent's cgroup.clone_children is 1, the new cpuset has the CPUs and
// memory nodes of the parent.
func (f *Cgroups) Mkdir(dir string) error {
	err := f.mkdir(dir)
	if err == nil {
		f.notify(dir, cgroup.Created)
	}
	return err
}

// mkdir makes a cgroup without a call of the listeners.
func (f *Cgroups) mkdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, name := path.Split(path.Clean(dir))
	g, ok := f.findGroup(path.Clean(parent))
	switch {
	case !fs.ValidPath(dir) || dir == ".":
		return pathError("mkdir", dir, syscall.EINVAL)
	case !ok:
		return pathError("mkdir", dir, syscall.ENOENT)
	case g.children[name] != nil:
		return pathError("mkdir", dir, syscall.EEXIST)
	}
	g.children[name] = f.newGroup(g, name)
	return nil
}

// MkdirRunc makes a cgroup and its missing parents like runc. In version 1 it copies the parent's CPUs and memory
// nodes to an empty cpuset. In version 2 it enables all available controllers in the parents.
func (f *Cgroups) MkdirRunc(dir string) error {
	if !fs.ValidPath(dir) || dir == "." {
		return pathError("mkdir", dir, syscall.EINVAL)
	}
	for _, made := range f.mkdirRunc(dir) {
		f.notify(made, cgroup.Created)
	}
	return nil
}

// mkdirRunc does the work of MkdirRunc without a call of the listeners. It returns the paths of the cgroups that it
// made, parents first.
func (f *Cgroups) mkdirRunc(dir string) (made []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, at := f.root, ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		for _, c := range controllers[f.version] {
			if f.version == cgroup.V2 {
				_ = f.setControllers(g, map[string]bool{c: true}) // runc also ignores the error
			}
		}
		next := g.children[part]
		if next == nil {
			next = f.newGroup(g, part)
			g.children[part] = next
			made = append(made, at)
		}
		if f.version == cgroup.V1 && next.cpus.Empty() {
			next.cpus = g.cpus
		}
		if f.version == cgroup.V1 && next.mems.Empty() {
			next.mems = g.mems
		}
		g = next
	}
	return made
}

// Rmdir removes a cgroup. It fails with EBUSY if the cgroup has children or tasks.
func (f *Cgroups) Rmdir(dir string) error {
	err := f.rmdir(dir)
	if err == nil {
		f.notify(dir, cgroup.Removed)
	}
	return err
}

// rmdir removes a cgroup without a call of the listeners.
func (f *Cgroups) rmdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.findGroup(dir)
	switch {
	case !ok:
		return pathError("rmdir", dir, syscall.ENOENT)
	case g == f.root || len(g.children) > 0 || f.hasTasks(g, ""):
		return pathError("rmdir", dir, syscall.EBUSY)
	}
	f.endPartition(g)
	delete(g.parent.children, path.Base(dir))
	return nil
}

// SetUsage sets the memory that is charged to a cgroup in addition to the memory of its tasks. Version 1 refuses a
// limit below the memory in use (EBUSY). Version 2 accepts such a limit and kills tasks.
func (f *Cgroups) SetUsage(dir string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.findGroup(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	g.usage = bytes
	return nil
}

// ReadFile returns the text of a file.
func (f *Cgroups) ReadFile(file string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, kind, err := f.findFile("open", file)
	if err != nil {
		return nil, err
	}
	if kind.show == nil {
		return nil, pathError("read", file, syscall.EINVAL)
	}
	text := kind.show(f, g)
	if text == "" && kind.lines {
		return nil, nil
	}
	return []byte(text + "\n"), nil
}

// WriteFile writes a file. It fails with the kernel's errno for a text that the kernel refuses.
func (f *Cgroups) WriteFile(file string, data []byte) error {
	f.mu.Lock()
	writeFault, onWrite, listeners := f.writeFault, f.onWrite, f.listeners
	f.mu.Unlock()
	if writeFault != nil {
		if err := writeFault(file, string(data)); err != nil {
			return err
		}
	}
	if err := f.storeFile(file, data); err != nil {
		return err
	}
	if onWrite != nil {
		onWrite(file, string(data))
	}
	for _, l := range listeners {
		l.call(file, cgroup.Written)
	}
	return nil
}

// storeFile writes a file without a call of the functions that observe writes.
func (f *Cgroups) storeFile(file string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, kind, err := f.findFile("open", file)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil // write(2) of 0 bytes does not reach the file
	}
	if kind.set == nil {
		return pathError("write", file, syscall.EINVAL)
	}
	// The kernel ignores the text after a NUL byte.
	text, _, _ := strings.Cut(string(data), "\x00")
	if err := kind.set(f, g, text); err != nil {
		return pathError("write", file, err)
	}
	return nil
}

// List returns the names of the cgroups directly below dir. At the root of version 1 it returns the controllers.
func (f *Cgroups) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == cgroup.V1 && dir == "." {
		return slices.Clone(controllers[cgroup.V1]), nil
	}
	group := dir
	if f.version == cgroup.V1 {
		controller, rest, _ := strings.Cut(dir, "/")
		if !slices.Contains(controllers[cgroup.V1], controller) {
			return nil, pathError("open", dir, syscall.ENOENT)
		}
		group = path.Clean(rest)
	}
	g, ok := f.findGroup(group)
	if !ok {
		return nil, pathError("open", dir, syscall.ENOENT)
	}
	var names []string
	for name := range g.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// findGroup returns the cgroup in the directory dir. The path dir is relative to the root of the hierarchy; "." is the
// root.
func (f *Cgroups) findGroup(dir string) (*group, bool) {
	g := f.root
	if dir == "." || dir == "" {
		return g, true
	}
	for part := range strings.SplitSeq(dir, "/") {
		if g = g.children[part]; g == nil {
			return nil, false
		}
	}
	return g, true
}

// findFile returns the model of the file at a path, and the file's cgroup. If there is no such file, the error is
// ENOENT for the operation op, such as "open".
func (f *Cgroups) findFile(op, file string) (*group, fileModel, error) {
	dir, name := path.Split(file)
	dir = strings.TrimSuffix(dir, "/")
	controller, _, _ := strings.Cut(name, ".")
	table := filesV2
	if f.version == cgroup.V1 {
		table = nil
		if c, rest, _ := strings.Cut(dir, "/"); slices.Contains(controllers[cgroup.V1], c) {
			table, dir, controller = filesV1[c], rest, c
		}
	}
	g, ok := f.findGroup(dir)
	kind, known := table[name]
	if ok && !known && f.version == cgroup.V1 {
		kind, known = coreFileV1(controller, name)
	}
	switch {
	case !ok, !known, kind.optional && !f.addedFiles[name], kind.minKernelMinor > 0 && !f.kernelSince(kind.minKernelMinor):
	case f.version == cgroup.V2 && g == f.root && !kind.atRoot, f.version == cgroup.V1 && g == f.root && kind.notAtRoot:
	case f.version == cgroup.V2 && g != f.root && (kind.rootOnly || controller != "cgroup" && !g.parent.childControllers[controller]):
	default:
		return g, kind, nil
	}
	return nil, fileModel{}, pathError(op, file, syscall.ENOENT)
}

// pathError returns an error with the text of a failed system call, such as "open PATH: no such file or directory".
func pathError(op, file string, err error) error {
	return &fs.PathError{Op: op, Path: file, Err: err}
}
