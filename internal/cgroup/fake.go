package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Fake is a cgroup tree in memory that refuses what the kernel refuses and shows
// what the kernel would show, for the settings of the table and what bounds
// them. It is for tests and simulations. Its model was compared with a kernel
// (TestFakeAgainstKernel) for version 1; version 2 follows the kernel's source.
//
// Not modelled: cpuset partitions and exclusive sets, hot-plugging, real-time
// scheduling, list strides, memory of one cgroup counted in its parents.
type Fake struct {
	version Version
	cpus    IDs // online
	mems    IDs // nodes with memory

	mu       sync.Mutex
	root     *fakeGroup
	possible IDs
	offered  map[string]bool // files of other kernels
	observe  func(path, value string)
	fail     func(path, value string) error
}

// fakeGroup is one cgroup, of all controllers alike.
type fakeGroup struct {
	parent   *fakeGroup
	children map[string]*fakeGroup
	tasks    int

	cpus, mems            IDs
	shares                int64 // weight in version 2
	idle                  bool
	quota, period, burst  int64 // µs; quota -1 for none
	usage                 int64
	limit, swap           int64 // bytes in whole pages; memory and swap in version 1
	protectMin, low, high int64
	oomGroup, bvt         int64
	clone                 bool
	huge                  [len(fakeHugePages)]int64 // bytes by size
}

// NewFake makes a tree with a root and no cgroup, on a machine with the given
// online CPUs and memory nodes (kernel lists).
func NewFake(version Version, cpus, mems string) (*Fake, error) {
	c, errC := ParseIDs(cpus)
	m, errM := ParseIDs(mems)
	if err := errors.Join(errC, errM); err != nil {
		return nil, fmt.Errorf("fake cgroups: %w", err)
	}
	if c.Empty() || m.Empty() || (version != V1 && version != V2) {
		return nil, errors.New("fake cgroups: no version, no CPU or no memory node")
	}
	f := &Fake{version: version, cpus: c, mems: m, possible: c}
	f.root = f.newGroup(nil)
	f.root.cpus, f.root.mems = c, m
	return f, nil
}

func (f *Fake) newGroup(parent *fakeGroup) *fakeGroup {
	g := &fakeGroup{
		parent: parent, children: map[string]*fakeGroup{},
		quota: -1, period: 100000,
		limit: unlimitedBytes(), swap: unlimitedBytes(), high: unlimitedBytes(),
	}
	g.shares = f.defaultShares()
	for i, size := range fakeHugePages {
		g.huge[i] = unlimitedHuge(size)
	}
	if parent != nil && f.version == V1 && parent.clone {
		g.cpus, g.mems, g.clone = parent.cpus, parent.mems, true
	}
	return g
}

func (f *Fake) defaultShares() int64 {
	if f.version == V1 {
		return 1024
	}
	return 100
}

// unlimitedBytes is what the kernel stores for no limit.
func unlimitedBytes() int64 {
	size := int64(os.Getpagesize())
	return math.MaxInt64 / size * size
}

// SetPossible sets which CPUs could come online (those online are among them).
// It starts as those online.
func (f *Fake) SetPossible(cpus string) error {
	c, err := ParseIDs(cpus)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.possible = c.Union(f.cpus)
	return nil
}

// Offer adds files that not every kernel has, such as cpu.bvt_warp_ns.
func (f *Fake) Offer(files ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range files {
		if kind, ok := fakeV2[name]; !ok || !kind.offered {
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
	g.children[name] = f.newGroup(g)
	return nil
}

// MkdirRunc makes a cgroup and those above it as OCI runtimes do: an empty
// cpuset of version 1 is given the parent's CPUs and memory nodes.
func (f *Fake) MkdirRunc(dir string) error {
	if !fs.ValidPath(dir) || dir == "." {
		return pathError("mkdir", dir, syscall.EINVAL)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.root
	for part := range strings.SplitSeq(dir, "/") {
		next := g.children[part]
		if next == nil {
			next = f.newGroup(g)
			g.children[part] = next
		}
		if f.version == V1 && next.cpus.Empty() {
			next.cpus = g.cpus
		}
		if f.version == V1 && next.mems.Empty() {
			next.mems = g.mems
		}
		g = next
	}
	return nil
}

// Rmdir removes a cgroup. One with children or tasks is busy.
func (f *Fake) Rmdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	switch {
	case !ok:
		return pathError("rmdir", dir, syscall.ENOENT)
	case g == f.root || len(g.children) > 0 || g.tasks > 0:
		return pathError("rmdir", dir, syscall.EBUSY)
	}
	delete(g.parent.children, path.Base(dir))
	return nil
}

// SetTasks puts n tasks into a cgroup. In version 1 a cgroup without CPUs or
// memory nodes takes none (ENOSPC).
func (f *Fake) SetTasks(dir string, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.find(dir)
	if !ok {
		return pathError("write", dir, syscall.ENOENT)
	}
	if n > 0 && f.version == V1 && (g.cpus.Empty() || g.mems.Empty()) {
		return pathError("write", dir, syscall.ENOSPC)
	}
	g.tasks = n
	return nil
}

// SetUsage sets the memory a cgroup uses. Version 1 refuses a limit below it
// (EBUSY); version 2 takes the limit and kills.
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
	return []byte(kind.show(f, g) + "\n"), nil
}

// WriteFile sets a file as the kernel would, or refuses with its errno.
func (f *Fake) WriteFile(file string, data []byte) error {
	f.mu.Lock()
	fail, observe := f.fail, f.observe
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
	if err := kind.set(f, g, string(data)); err != nil {
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
		return slices.Clone(fakeControllers), nil
	}
	group := dir
	if f.version == V1 {
		controller, rest, _ := strings.Cut(dir, "/")
		if !slices.Contains(fakeControllers, controller) {
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
	table := fakeV2
	if f.version == V1 {
		table = nil
		if controller, rest, _ := strings.Cut(dir, "/"); slices.Contains(fakeControllers, controller) {
			table, dir = fakeV1[controller], rest
		}
	}
	g, ok := f.find(dir)
	kind, known := table[name]
	// The root of version 2 carries no settings.
	if !ok || !known || kind.offered && !f.offered[name] || (f.version == V2 && g == f.root && !kind.atRoot) {
		return nil, fakeFile{}, pathError(op, file, syscall.ENOENT)
	}
	return g, kind, nil
}

func pathError(op, file string, err error) error {
	return &fs.PathError{Op: op, Path: file, Err: err}
}
