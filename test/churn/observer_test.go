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

// observer checks the cpuset of every running container, at every write and at every first instruction. It takes the
// owned CPUs from the OCI spec of the creation, and the values in force from the kernel alone.
type observer struct {
	kernel  *kernel.Cgroups
	version cgroup.Version
	nodes   map[int]topology.Set

	mu     sync.Mutex
	live   map[string]*seen // running, by cgroup
	owners map[scenario.Ref]*owner
	owned  topology.Set
	still  bool // agent or runtime restarts: nothing may change now
	wrong  []string
	writes int // checked writes of CPU lists and first instructions
}

// seen is a running container that the observer knows.
type seen struct {
	ref       scenario.Ref
	cpus      topology.Set
	reclaimed bool
	owns      bool
}

// owner is a pod that owns CPUs, from the start of its first container to its end.
type owner struct {
	cpus topology.Set
	lent bool // reclaimed containers may use them
	// resizing has the CPUs before an in-place resize. During the resize the pod owns all CPUs that its containers have.
	resizing bool
	before   topology.Set
}

func newObserver(m *topology.Machine, k *kernel.Cgroups, v cgroup.Version) *observer {
	e := &observer{kernel: k, version: v, nodes: map[int]topology.Set{}, live: map[string]*seen{}, owners: map[scenario.Ref]*owner{}}
	for _, n := range m.Nodes {
		e.nodes[n.ID] = n.CPUs
	}
	k.OnWrite(e.written)
	return e
}

// written checks a container whose CPU list was written.
func (e *observer) written(file, _ string) {
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
	e.check(path.Clean(dir), c, "at a write")
	if o := e.owners[c.ref.Pod()]; c.owns && o != nil && o.resizing {
		e.hold(o, e.held(c.ref.Pod()), "at a write during its resize")
	}
}

// held returns the CPUs that the running containers of an owner have.
func (e *observer) held(pod scenario.Ref) topology.Set {
	var all topology.Set
	for _, c := range e.live {
		if c.owns && c.ref.Pod() == pod {
			all = all.Union(c.cpus)
		}
	}
	return all
}

// hold gives a pod other CPUs and checks all other containers against them.
func (e *observer) hold(o *owner, cpus topology.Set, when string) {
	o.cpus = cpus
	e.owned = topology.Set{}
	for _, any := range e.owners {
		e.owned = e.owned.Union(any.cpus)
	}
	for _, c := range e.live {
		e.judge(c, when)
	}
}

// resizing notes that an in-place resize of a pod begins, and returns the CPUs that the pod owns.
func (e *observer) resizing(pod scenario.Ref) topology.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.owners[pod]
	if o == nil {
		return topology.Set{}
	}
	o.resizing, o.before = true, o.cpus
	return o.before
}

// resized checks a pod after its resize: all its containers have the CPUs that it owns now.
func (e *observer) resized(pod scenario.Ref, cpus topology.Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.owners[pod]
	o.resizing = false
	e.hold(o, cpus, "after a resize of "+string(pod))
}

// started checks a container at its first instruction, from which on the CPUs in owned are exclusive to it.
func (e *observer) started(dir string, c seen, owned topology.Set, lent bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writes++
	c.owns = !owned.Empty()
	if c.owns {
		e.own(c.ref.Pod(), owner{cpus: owned, lent: lent})
	}
	e.live[dir] = &c
	e.check(dir, &c, "at its first instruction")
}

func (e *observer) own(pod scenario.Ref, o owner) {
	if old := e.owners[pod]; old != nil {
		if old.cpus != o.cpus {
			e.note("I4: %s owned %v, and a later container of it owns %v", pod, old.cpus, o.cpus)
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

// stopped removes a container.
func (e *observer) stopped(dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, dir)
}

// gone removes a pod.
func (e *observer) gone(pod scenario.Ref) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.owners[pod]; o != nil {
		delete(e.owners, pod)
		e.owned = e.owned.Minus(o.cpus)
	}
}

// freeze notes whether the agent or the runtime restarts, during which nothing may change.
func (e *observer) freeze(still bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.still = still
}

// check reads the cpuset of a container and judges it.
func (e *observer) check(dir string, c *seen, when string) {
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

// read returns the cpuset of a cgroup and its effective cpuset.
func (e *observer) read(dir string) (set, has topology.Set) {
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

// judge compares a container's CPUs with those that others own.
func (e *observer) judge(c *seen, when string) {
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

func (e *observer) note(format string, args ...any) {
	if len(e.wrong) < 5 {
		for i, a := range args {
			if s, ok := a.(topology.Set); ok {
				args[i] = topology.FormatList(s.Members())
			}
		}
		e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
	}
}

// audit reads all cpusets again, to find changes without a notification.
func (e *observer) audit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for dir, c := range e.live {
		if _, has := e.read(dir); has != c.cpus {
			e.note("%s has %v, and %v at its last write", c.ref, has, c.cpus)
		}
		e.judge(c, "at an audit")
	}
}

// verdict returns all violations so far.
func (e *observer) verdict() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
}

// grants returns the CPUs of owners whose containers have started.
func (e *observer) grants() map[scenario.Ref]topology.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[scenario.Ref]topology.Set{}
	for pod, o := range e.owners {
		all[pod] = o.cpus
	}
	return all
}
