package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Fake is a cgroup tree in memory that refuses what the kernel refuses and shows
// what the kernel would show, for the settings of the table, what bounds them,
// and the other files of package kscript's script. It is for tests and
// simulations. It is held to recordings of kernels 6.1 (versions 1 and 2) and
// 6.12 (version 2); where it is meant to differ, kscript.Known says why.
//
// Not modelled: real-time scheduling, reclaim (memory in use stays in use), swap.
type Fake struct {
	version Version
	cpus    IDs // online
	mems    IDs // nodes with memory

	mu       sync.Mutex
	root     *fakeGroup
	possible IDs
	made     int             // cgroups so far
	release  [2]int          // of the kernel
	devices  map[string]bool // block devices, "major:minor"
	offered  map[string]bool // files of other kernels
	parted   bool            // somebody has asked for a partition: else none need be looked for
	procs    map[int]*fakeProc
	observe  func(path, value string)
	// listeners is replaced, never changed: who has it may read it without the lock.
	listeners []*listener
	fail      func(path, value string) error
}

// fakeGroup is one cgroup, of all controllers alike.
type fakeGroup struct {
	parent   *fakeGroup
	name     string
	children map[string]*fakeGroup
	tasks    int // that have no process of their own, in all controllers
	serial   int // of all cgroups ever made

	// Of version 2.
	subtree  map[string]bool // controllers its children have
	threaded bool
	part     fakePartition

	fakeCPU
	fakeCPUSet
	fakeMemory
	fakeOther
}

// NewFake makes a tree with a root and no cgroup, on a machine with the given
// online CPUs and memory nodes (kernel lists). In version 2 the root gives its
// children every controller, as systemd and runtimes set it up.
func NewFake(version Version, cpus, mems string) (*Fake, error) {
	c, errC := ParseIDs(cpus)
	m, errM := ParseIDs(mems)
	if err := errors.Join(errC, errM); err != nil {
		return nil, fmt.Errorf("fake cgroups: %w", err)
	}
	if c.Empty() || m.Empty() || (version != V1 && version != V2) {
		return nil, errors.New("fake cgroups: no version, no CPU or no memory node")
	}
	f := &Fake{version: version, cpus: c, mems: m, possible: c, release: [2]int{6, 1}, procs: map[int]*fakeProc{}}
	f.root = f.newGroup(nil, "")
	f.root.cpus, f.root.mems = c, m
	for _, name := range fakeControllers[version] {
		f.root.subtree[name] = true
	}
	return f, nil
}

func (f *Fake) newGroup(parent *fakeGroup, name string) *fakeGroup {
	g := &fakeGroup{parent: parent, name: name, children: map[string]*fakeGroup{}, subtree: map[string]bool{}}
	f.made++
	g.serial = f.made
	for _, c := range fakeControllers[f.version] {
		f.reset(g, c)
	}
	if parent != nil && f.version == V1 && parent.clone {
		g.cpus, g.mems, g.clone = parent.cpus, parent.mems, true
	}
	return g
}

// reset gives a cgroup what a new one has of a controller.
func (f *Fake) reset(g *fakeGroup, controller string) {
	switch controller {
	case "cpu":
		g.fakeCPU = fakeCPU{shares: f.defaultShares(), bandwidth: bandwidth{quota: noQuota, period: 100000 * microsecond}}
	case "cpuset":
		g.fakeCPUSet, g.part = fakeCPUSet{balance: true, relax: -1}, fakePartition{}
	case "memory":
		n := unlimitedBytes()
		usage := g.usage // set from outside
		g.fakeMemory = fakeMemory{limit: n, swap: n, high: n, swapHigh: n, soft: n, swappiness: 60, usage: usage}
	default:
		g.resetOther(controller)
	}
}

func (f *Fake) defaultShares() int64 {
	if f.version == V1 {
		return 1024
	}
	return 100
}

// since reports whether the kernel is 6.minor or later.
func (f *Fake) since(minor int) bool {
	return f.release[0] > 6 || f.release[0] == 6 && f.release[1] >= minor
}

// SetRelease sets which kernel it is, by the beginning of what uname -r says. It
// starts as 6.1.
func (f *Fake) SetRelease(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("fake cgroups: release %q: %w", shorten(release), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release = [2]int{major, minor}
	return nil
}

// AddDevice adds a block device by its number, "254:0".
func (f *Fake) AddDevice(number string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.devices == nil {
		f.devices = map[string]bool{}
	}
	f.devices[number] = true
}

// Offer adds files that not every kernel has, such as cpu.bvt_warp_ns.
func (f *Fake) Offer(files ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range files {
		kind, ok := fakeV2[name]
		if !ok {
			controller, _, _ := strings.Cut(name, ".")
			kind, ok = fakeV1[controller][name]
		}
		if !ok || !kind.offered {
			return fmt.Errorf("fake cgroups: no model of a file %q that can be added", name)
		}
		if f.offered == nil {
			f.offered = map[string]bool{}
		}
		f.offered[name] = true
	}
	return nil
}

// OnWrite sets what is called after each accepted write, outside the lock: it
// may read the tree. Writes do not wait for each other's call.
func (f *Fake) OnWrite(call func(path, value string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observe = call
}

// FailWrites sets what is asked before each write; an error is the answer to it.
func (f *Fake) FailWrites(call func(path, value string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = call
}

// Mkdir makes one cgroup as mkdir(2) does, in version 1 in all controllers. A
// new cpuset of version 1 is empty unless the parent's cgroup.clone_children is 1.
func (f *Fake) Mkdir(dir string) error {
	err := f.mkdir(dir)
	if err == nil {
		f.tell(dir, Made)
	}
	return err
}

func (f *Fake) mkdir(dir string) error {
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

// MkdirRunc makes a cgroup and those above it as OCI runtimes do: an empty
// cpuset of version 1 is given the parent's CPUs and memory nodes, and in
// version 2 those above give their children every controller they can.
func (f *Fake) MkdirRunc(dir string) error {
	if !fs.ValidPath(dir) || dir == "." {
		return pathError("mkdir", dir, syscall.EINVAL)
	}
	for _, made := range f.mkdirRunc(dir) {
		f.tell(made, Made)
	}
	return nil
}

// mkdirRunc returns the cgroups it made, outer ones first.
func (f *Fake) mkdirRunc(dir string) (made []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, at := f.root, ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		for _, c := range fakeControllers[f.version] {
			if f.version == V2 {
				_ = f.control(g, map[string]bool{c: true}) // runc goes on, too
			}
		}
		next := g.children[part]
		if next == nil {
			next = f.newGroup(g, part)
			g.children[part] = next
			made = append(made, at)
		}
		if f.version == V1 && next.cpus.Empty() {
			next.cpus = g.cpus
		}
		if f.version == V1 && next.mems.Empty() {
			next.mems = g.mems
		}
		g = next
	}
	return made
}

// Rmdir removes a cgroup. One with children or tasks is busy.
func (f *Fake) Rmdir(dir string) error {
	err := f.rmdir(dir)
	if err == nil {
		f.tell(dir, Removed)
	}
	return err
}

func (f *Fake) rmdir(dir string) error {
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

// SetUsage sets the memory a cgroup uses beside its tasks. Version 1 refuses a
// limit below it (EBUSY); version 2 takes the limit and kills.
func (f *Fake) SetUsage(dir string, bytes int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	g.usage = bytes
	return nil
}

// ReadFile returns the text the kernel would show.
func (f *Fake) ReadFile(file string) ([]byte, error) {
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

// WriteFile sets a file as the kernel would, or refuses with its errno.
func (f *Fake) WriteFile(file string, data []byte) error {
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
		l.call(file, Written)
	}
	return nil
}

func (f *Fake) store(file string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, kind, err := f.file("open", file)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil // write(2) of nothing does not reach the file
	}
	if kind.set == nil {
		return pathError("write", file, syscall.EINVAL)
	}
	// What the kernel is given ends at a NUL, as its strings do.
	text, _, _ := strings.Cut(string(data), "\x00")
	if err := kind.set(f, g, text); err != nil {
		return pathError("write", file, err)
	}
	return nil
}

// List returns the names of the cgroups below dir; at the root of version 1,
// the controllers.
func (f *Fake) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == V1 && dir == "." {
		return slices.Clone(fakeControllers[V1]), nil
	}
	group := dir
	if f.version == V1 {
		controller, rest, _ := strings.Cut(dir, "/")
		if !slices.Contains(fakeControllers[V1], controller) {
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
func (f *Fake) find(dir string) (*fakeGroup, bool) {
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

// file finds a cgroup and the file of it that a path names.
func (f *Fake) file(op, file string) (*fakeGroup, fakeFile, error) {
	dir, name := path.Split(file)
	dir = strings.TrimSuffix(dir, "/")
	controller, _, _ := strings.Cut(name, ".")
	table := fakeV2
	if f.version == V1 {
		table = nil
		if c, rest, _ := strings.Cut(dir, "/"); slices.Contains(fakeControllers[V1], c) {
			table, dir, controller = fakeV1[c], rest, c
		}
	}
	g, ok := f.find(dir)
	kind, known := table[name]
	if ok && !known && f.version == V1 {
		kind, known = fakeCore(controller, name)
	}
	switch {
	case !ok, !known, kind.offered && !f.offered[name], kind.minor > 0 && !f.since(kind.minor):
	case f.version == V2 && g == f.root && !kind.atRoot, f.version == V1 && g == f.root && kind.notAtRoot:
	case f.version == V2 && g != f.root && (kind.rootOnly || controller != "cgroup" && !g.parent.subtree[controller]):
	default:
		return g, kind, nil
	}
	return nil, fakeFile{}, pathError(op, file, syscall.ENOENT)
}

func pathError(op, file string, err error) error {
	return &fs.PathError{Op: op, Path: file, Err: err}
}
