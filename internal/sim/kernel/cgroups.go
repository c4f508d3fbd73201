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

// Cgroups is a cgroup tree in memory. It refuses and shows the same as the kernel for the settings of package cgroup,
// for the files that limit them, and for the other files of the kernel script (test/kernel/script). The script compares
// it with recordings of kernels 6.1 (versions 1 and 2) and 6.12 (version 2). Its known.go lists the intended
// differences, each with a reason.
//
// Not modelled: real-time scheduling, reclaim (memory in use stays in use), swap.
type Cgroups struct {
	version cgroup.Version
	cpus    cgroup.IDs // online
	mems    cgroup.IDs // nodes with memory

	mu       sync.Mutex
	root     *group
	possible cgroup.IDs
	made     int             // number of cgroups made so far
	release  [2]int          // minor version of the kernel
	devices  map[string]bool // block devices, "major:minor"
	offered  map[string]bool // files that not every kernel has, from Offer
	parted   bool            // set by the first write that requests a partition; until then the tree needs no checks of partitions
	procs    map[int]*task
	observe  func(path, value string)
	// listeners is replaced and never modified: a goroutine with a copy reads it without the lock.
	listeners []*listener
	fail      func(path, value string) error
}

// group is one cgroup, in all controllers.
type group struct {
	parent   *group
	name     string
	children map[string]*group
	tasks    int // tasks without a process of their own, in all controllers
	serial   int // unique number of the cgroup

	// Of version 2.
	subtree  map[string]bool // controllers of its children
	threaded bool
	part     partition

	cpuState
	cpusetState
	memoryState
	otherState
}

// NewCgroups makes a tree with only a root, on a machine with the given online CPUs and memory nodes (kernel lists). In
// version 2 the root enables every controller for its children, like systemd and runtimes.
func NewCgroups(version cgroup.Version, cpus, mems string) (*Cgroups, error) {
	c, errC := cgroup.ParseIDs(cpus)
	m, errM := cgroup.ParseIDs(mems)
	if err := errors.Join(errC, errM); err != nil {
		return nil, fmt.Errorf("simulated cgroups: %w", err)
	}
	if c.Empty() || m.Empty() || (version != cgroup.V1 && version != cgroup.V2) {
		return nil, errors.New("simulated cgroups: no version, no CPU or no memory node")
	}
	f := &Cgroups{version: version, cpus: c, mems: m, possible: c, release: [2]int{6, 1}, procs: map[int]*task{}}
	f.root = f.newGroup(nil, "")
	f.root.cpus, f.root.mems = c, m
	for _, name := range controllers[version] {
		f.root.subtree[name] = true
	}
	return f, nil
}

func (f *Cgroups) newGroup(parent *group, name string) *group {
	g := &group{parent: parent, name: name, children: map[string]*group{}, subtree: map[string]bool{}}
	f.made++
	g.serial = f.made
	for _, c := range controllers[f.version] {
		f.reset(g, c)
	}
	if parent != nil && f.version == cgroup.V1 && parent.clone {
		g.cpus, g.mems, g.clone = parent.cpus, parent.mems, true
	}
	return g
}

// reset sets the values of a new cgroup in a controller.
func (f *Cgroups) reset(g *group, controller string) {
	switch controller {
	case "cpu":
		g.cpuState = cpuState{shares: f.defaultShares(), bandwidth: bandwidth{quota: noQuota, period: 100000 * microsecond}}
	case "cpuset":
		g.cpusetState, g.part = cpusetState{balance: true, relax: -1}, partition{}
	case "memory":
		n := cgroup.UnlimitedBytes()
		usage := g.usage // set by SetUsage
		g.memoryState = memoryState{limit: n, swap: n, high: n, swapHigh: n, soft: n, swappiness: 60, usage: usage}
	default:
		g.resetOther(controller)
	}
}

func (f *Cgroups) defaultShares() int64 {
	if f.version == cgroup.V1 {
		return 1024
	}
	return 100
}

// since reports whether the kernel is 6.minor or later.
func (f *Cgroups) since(minor int) bool {
	return f.release[0] > 6 || f.release[0] == 6 && f.release[1] >= minor
}

// SetRelease sets the kernel's release by the beginning of uname -r. The default is 6.1.
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

// AddDevice adds a block device by its number, "254:0".
func (f *Cgroups) AddDevice(number string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.devices == nil {
		f.devices = map[string]bool{}
	}
	f.devices[number] = true
}

// Offer adds files that not every kernel has, such as cpu.bvt_warp_ns.
func (f *Cgroups) Offer(files ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range files {
		kind, ok := filesV2[name]
		if !ok {
			controller, _, _ := strings.Cut(name, ".")
			kind, ok = filesV1[controller][name]
		}
		if !ok || !kind.offered {
			return fmt.Errorf("simulated cgroups: no model of a file %q that can be added", name)
		}
		if f.offered == nil {
			f.offered = map[string]bool{}
		}
		f.offered[name] = true
	}
	return nil
}

// OnWrite sets a function that is called after each accepted write, without the lock, so that it may read the tree.
// Calls for different writes may run concurrently.
func (f *Cgroups) OnWrite(call func(path, value string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe = call
}

// FailWrites sets a function that is called before each write. If it returns an error, the write fails with that error.
func (f *Cgroups) FailWrites(call func(path, value string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = call
}

// Mkdir makes one cgroup like mkdir(2), in version 1 in all controllers. A new cpuset of version 1 is empty unless the
// parent's cgroup.clone_children is 1.
func (f *Cgroups) Mkdir(dir string) error {
	err := f.mkdir(dir)
	if err == nil {
		f.notify(dir, cgroup.Made)
	}
	return err
}

func (f *Cgroups) mkdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, name := path.Split(path.Clean(dir))
	g, ok := f.find(path.Clean(parent))
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

// MkdirRunc makes a cgroup and its missing parents like an OCI runtime. In version 1 an empty cpuset gets the parent's
// CPUs and memory nodes. In version 2 the parents enable every available controller for their children.
func (f *Cgroups) MkdirRunc(dir string) error {
	if !fs.ValidPath(dir) || dir == "." {
		return pathError("mkdir", dir, syscall.EINVAL)
	}
	for _, made := range f.mkdirRunc(dir) {
		f.notify(made, cgroup.Made)
	}
	return nil
}

// mkdirRunc returns the cgroups that it made, parents first.
func (f *Cgroups) mkdirRunc(dir string) (made []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, at := f.root, ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		for _, c := range controllers[f.version] {
			if f.version == cgroup.V2 {
				_ = f.control(g, map[string]bool{c: true}) // runc ignores the error, too
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

// Rmdir removes a cgroup. One with children or tasks is busy.
func (f *Cgroups) Rmdir(dir string) error {
	err := f.rmdir(dir)
	if err == nil {
		f.notify(dir, cgroup.Removed)
	}
	return err
}

func (f *Cgroups) rmdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	switch {
	case !ok:
		return pathError("rmdir", dir, syscall.ENOENT)
	case g == f.root || len(g.children) > 0 || f.inhabited(g, ""):
		return pathError("rmdir", dir, syscall.EBUSY)
	}
	f.endPartition(g)
	delete(g.parent.children, path.Base(dir))
	return nil
}

// SetUsage sets the memory that a cgroup uses besides its tasks. Version 1 refuses a limit below it (EBUSY); version 2
// accepts the limit and kills tasks.
func (f *Cgroups) SetUsage(dir string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	g.usage = bytes
	return nil
}

// ReadFile returns the text that the kernel would show.
func (f *Cgroups) ReadFile(file string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, kind, err := f.file("open", file)
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

// WriteFile sets a file like the kernel, or refuses with the kernel's errno.
func (f *Cgroups) WriteFile(file string, data []byte) error {
	f.mu.Lock()
	fail, observe, listeners := f.fail, f.observe, f.listeners
	f.mu.Unlock()
	if fail != nil {
		if err := fail(file, string(data)); err != nil {
			return err
		}
	}
	if err := f.store(file, data); err != nil {
		return err
	}
	if observe != nil {
		observe(file, string(data))
	}
	for _, l := range listeners {
		l.call(file, cgroup.Written)
	}
	return nil
}

func (f *Cgroups) store(file string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, kind, err := f.file("open", file)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil // write(2) of 0 bytes does not reach the file
	}
	if kind.set == nil {
		return pathError("write", file, syscall.EINVAL)
	}
	// The kernel reads the text up to a NUL.
	text, _, _ := strings.Cut(string(data), "\x00")
	if err := kind.set(f, g, text); err != nil {
		return pathError("write", file, err)
	}
	return nil
}

// List returns the names of the cgroups below dir; at the root of version 1,
// the controllers.
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
	g, ok := f.find(group)
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

// find returns the cgroup of a path relative to the hierarchy's root, ".".
func (f *Cgroups) find(dir string) (*group, bool) {
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

// file finds the cgroup and the file of a path.
func (f *Cgroups) file(op, file string) (*group, fileModel, error) {
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
	g, ok := f.find(dir)
	kind, known := table[name]
	if ok && !known && f.version == cgroup.V1 {
		kind, known = coreFile(controller, name)
	}
	switch {
	case !ok, !known, kind.offered && !f.offered[name], kind.minor > 0 && !f.since(kind.minor):
	case f.version == cgroup.V2 && g == f.root && !kind.atRoot, f.version == cgroup.V1 && g == f.root && kind.notAtRoot:
	case f.version == cgroup.V2 && g != f.root && (kind.rootOnly || controller != "cgroup" && !g.parent.subtree[controller]):
	default:
		return g, kind, nil
	}
	return nil, fileModel{}, pathError(op, file, syscall.ENOENT)
}

func pathError(op, file string, err error) error {
	return &fs.PathError{Op: op, Path: file, Err: err}
}
