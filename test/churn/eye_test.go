package churn

import (
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// eye watches what every running container may run on. It knows who owns CPUs
// from the specification a container was created with, and what is in force from
// the kernel alone, at every write and at every first instruction.
type eye struct {
	kernel  *kernel.Cgroups
	version cgroup.Version
	nodes   map[int]topology.Set

	mu     sync.Mutex
	live   map[string]*seen // running, by cgroup
	owners map[scenario.Ref]*owner
	owned  topology.Set
	still  bool // nothing may change now: somebody restarts
	wrong  []string
	writes int // of CPU lists, and first instructions
}

// seen is a running container.
type seen struct {
	ref       scenario.Ref
	cpus      topology.Set
	reclaimed bool
	owns      bool
}

// owner is a pod that owns CPUs, from its first container's start to its end.
type owner struct {
	cpus topology.Set
	lent bool // reclaimed containers may use them
	// resizing: it is resized in place, and had these CPUs before. Meanwhile it
	// owns what any of its containers has.
	resizing bool
	before   topology.Set
}

func newEye(m *topology.Machine, k *kernel.Cgroups, v cgroup.Version) *eye {
	e := &eye{kernel: k, version: v, nodes: map[int]topology.Set{}, live: map[string]*seen{}, owners: map[scenario.Ref]*owner{}}
	for _, n := range m.Nodes {
		e.nodes[n.ID] = n.CPUs
	}
	k.OnWrite(e.written)
	return e
}

// written looks at a container whose CPU list was written.
func (e *eye) written(file, _ string) {
	dir, name := path.Split(file)
	if name != "cpuset.cpus" {
		return
	}
	if e.version == cgroup.V1 {
		dir = strings.TrimPrefix(dir, "cpuset/")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	c := e.live[path.Clean(dir)]
	if c == nil {
		return
	}
	e.look(path.Clean(dir), c, "at a write")
	if o := e.owners[c.ref.Pod()]; c.owns && o != nil && o.resizing {
		e.hold(o, e.held(c.ref.Pod()), "at a write of its resize")
	}
}

// held is what the running containers of a pod have that owns CPUs.
func (e *eye) held(pod scenario.Ref) topology.Set {
	var all topology.Set
	for _, c := range e.live {
		if c.owns && c.ref.Pod() == pod {
			all = all.Union(c.cpus)
		}
	}
	return all
}

// hold has a pod own other CPUs, and judges everybody by that.
func (e *eye) hold(o *owner, cpus topology.Set, when string) {
	o.cpus = cpus
	e.owned = topology.Set{}
	for _, any := range e.owners {
		e.owned = e.owned.Union(any.cpus)
	}
	for _, c := range e.live {
		e.judge(c, when)
	}
}

// resizing notes that a pod is about to be resized in place; it returns what the
// pod owns.
func (e *eye) resizing(pod scenario.Ref) topology.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.owners[pod]
	if o == nil {
		return topology.Set{}
	}
	o.resizing, o.before = true, o.cpus
	return o.before
}

// resized looks at a pod after its resize: all its containers have what it owns now.
func (e *eye) resized(pod scenario.Ref, cpus topology.Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.owners[pod]
	o.resizing = false
	e.hold(o, cpus, "after a resize of "+string(pod))
}

// started looks at a container at its first instruction. From then on what it
// owns is its own; owned is empty where it owns nothing.
func (e *eye) started(dir string, c seen, owned topology.Set, lent bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	c.owns = !owned.Empty()
	if c.owns {
		e.own(c.ref.Pod(), owner{cpus: owned, lent: lent})
	}
	e.live[dir] = &c
	e.look(dir, &c, "at its first instruction")
}

func (e *eye) own(pod scenario.Ref, o owner) {
	if old := e.owners[pod]; old != nil {
		if old.cpus != o.cpus {
			e.note("I4: %s owned %v and a later container of it owns %v", pod, old.cpus, o.cpus)
		}
		return
	}
	if both := e.owned.And(o.cpus); !both.Empty() {
		e.note("I1: %s is given CPUs %v that others own", pod, both)
	}
	e.owners[pod] = &o
	e.owned = e.owned.Union(o.cpus)
	for _, c := range e.live {
		e.judge(c, "when "+string(pod)+" starts")
	}
}

// stopped forgets a container.
func (e *eye) stopped(dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, dir)
}

// gone forgets a pod, which ends.
func (e *eye) gone(pod scenario.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.owners[pod]; o != nil {
		delete(e.owners, pod)
		e.owned = e.owned.Minus(o.cpus)
	}
}

// freeze says whether something restarts, which may change nothing.
func (e *eye) freeze(still bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.still = still
}

// look reads what a container has, and judges it.
func (e *eye) look(dir string, c *seen, when string) {
	before := c.cpus
	set, has := e.read(dir)
	c.cpus = has
	if set.Empty() && has.Empty() {
		e.note("I2: %s: %s has no CPU", when, c.ref)
	}
	if e.still && before != has && !before.Empty() {
		e.note("I4: a restart moved %s from %v to %v", c.ref, before, has)
	}
	e.judge(c, when)
}

// read returns what a cgroup is set to and what that amounts to.
func (e *eye) read(dir string) (set, has topology.Set) {
	base, effective := dir+"/", "cpuset.cpus.effective"
	if e.version == cgroup.V1 {
		base, effective = "cpuset/"+base, "cpuset.effective_cpus"
	}
	for file, into := range map[string]*topology.Set{"cpuset.cpus": &set, effective: &has} {
		text, err := e.kernel.ReadFile(base + file)
		ids, bad := topology.ParseList(strings.TrimSpace(string(text)))
		if err != nil || bad != nil {
			e.note("%s%s: %q (%v, %v)", base, file, text, err, bad)
			continue
		}
		*into = topology.SetOf(ids...)
	}
	return set, has
}

// judge holds what a container has against what others own.
func (e *eye) judge(c *seen, when string) {
	own := e.owners[c.ref.Pod()]
	switch {
	case c.owns && own.resizing && !c.cpus.Contains(own.before) && !own.before.Contains(c.cpus):
		e.note("I4: %s: a resize moved %s from %v to %v", when, c.ref, own.before, c.cpus)
		return
	case c.owns && !own.resizing && c.cpus != own.cpus:
		e.note("I4: %s: %s owns %v and has %v", when, c.ref, own.cpus, c.cpus)
		return
	}
	others := e.owned
	if own != nil {
		others = others.Minus(own.cpus)
	}
	if c.cpus.And(others).Empty() {
		return
	}
	for pod, o := range e.owners {
		both := c.cpus.And(o.cpus)
		if pod != c.ref.Pod() && !both.Empty() && (!o.lent || !c.reclaimed) {
			e.note("I1: %s: %s has CPUs %v of %s", when, c.ref, both, pod)
		}
	}
}

func (e *eye) note(format string, args ...any) {
	if len(e.wrong) < 5 {
		for i, a := range args {
			if s, ok := a.(topology.Set); ok {
				args[i] = topology.FormatList(s.Members())
			}
		}
		e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
	}
}

// audit reads everything again: what the eye was told of writes must be all
// there was.
func (e *eye) audit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for dir, c := range e.live {
		if _, has := e.read(dir); has != c.cpus {
			e.note("%s has %v, and %v at its last write", c.ref, has, c.cpus)
		}
		e.judge(c, "at an audit")
	}
}

// verdict is what was wrong so far.
func (e *eye) verdict() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
}

// grants are the CPUs that pods own whose containers have started.
func (e *eye) grants() map[scenario.Ref]topology.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[scenario.Ref]topology.Set{}
	for pod, o := range e.owners {
		all[pod] = o.cpus
	}
	return all
}
