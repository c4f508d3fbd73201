package churn

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// referee watches a node on which calls fail. It knows who owns CPUs from what
// the agent said when the owner started, and what is in force from the kernel. While
// calls fail it judges what no fault excuses: that nobody is given a CPU that
// another owns. Where the kernel refused to take CPUs from others before an owner
// started, that is no grant of ours; it must be reported and mended afterwards.
type referee struct {
	cgroup.FS
	kernel  *kernel.Cgroups
	version cgroup.Version

	mu     sync.Mutex
	ours   map[string]int   // writes of the agent under way, by file
	live   map[string]*runs // by cgroup
	owners map[scenario.Ref]*holds
	wrong  []string
	writes int
	late   int // containers that still had an owner's CPUs when it started
}

// runs is a running container, and what it may run on.
type runs struct {
	ref       scenario.Ref
	cpus      topology.Set
	reclaimed bool
}

// holds is what a pod owns.
type holds struct {
	cpus     topology.Set
	lent     bool
	resizing bool
}

func newReferee(k *kernel.Cgroups, v cgroup.Version) *referee {
	r := &referee{FS: k, kernel: k, version: v, ours: map[string]int{}, live: map[string]*runs{}, owners: map[scenario.Ref]*holds{}}
	k.OnWrite(r.written)
	return r
}

// WriteFile is a write of the agent.
func (r *referee) WriteFile(file string, data []byte) error {
	r.mu.Lock()
	r.ours[file]++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ours[file]--
	}()
	return r.FS.WriteFile(file, data)
}

func (r *referee) note(format string, args ...any) {
	if len(r.wrong) < 5 {
		for i, a := range args {
			if s, ok := a.(topology.Set); ok {
				args[i] = topology.FormatList(s.Members())
			}
		}
		r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
	}
}

func (r *referee) read(dir string) topology.Set {
	file := dir + "/cpuset.cpus.effective"
	if r.version == cgroup.V1 {
		file = "cpuset/" + dir + "/cpuset.effective_cpus"
	}
	text, err := r.kernel.ReadFile(file)
	ids, bad := topology.ParseList(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		r.note("%s: %q (%v, %v)", file, text, err, bad)
	}
	return topology.SetOf(ids...)
}

// written judges a running container whose CPU list was written: what it has got
// by that must not be anybody else's.
func (r *referee) written(file, _ string) {
	dir, name := path.Split(file)
	if name != "cpuset.cpus" {
		return
	}
	if r.version == cgroup.V1 {
		dir = strings.TrimPrefix(dir, "cpuset/")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.live[path.Clean(dir)]
	if c == nil {
		return
	}
	r.writes++
	has := r.read(path.Clean(dir))
	got := has.Minus(c.cpus)
	c.cpus = has
	mine := r.owners[c.ref.Pod()]
	if mine != nil && mine.resizing { // also where the runtime wrote what the agent could not
		mine.cpus = r.heldLocked(c.ref.Pod())
	}
	if r.ours[file] == 0 {
		return // the runtime writes its copy, which is old while the agent is away
	}
	if has.Empty() {
		r.note("I2: %s has no CPU", c.ref)
	}
	if mine != nil && mine.resizing {
		r.taken(c.ref.Pod(), got, "by a resize")
	}
	for pod, o := range r.owners {
		if both := got.And(o.cpus); pod != c.ref.Pod() && !both.Empty() && (!o.lent || !c.reclaimed) {
			r.note("double grant: %s was given CPUs %v, which %s owns", c.ref, both, pod)
		}
	}
}

func (r *referee) heldLocked(pod scenario.Ref) topology.Set {
	var all topology.Set
	for _, c := range r.live {
		if c.ref.Pod() == pod {
			all = all.Union(c.cpus)
		}
	}
	return all
}

// taken notes who still has CPUs that a pod got while it runs.
func (r *referee) taken(pod scenario.Ref, got topology.Set, how string) {
	for _, c := range r.live {
		if both := c.cpus.And(got); c.ref.Pod() != pod && !both.Empty() && (!r.owners[pod].lent || !c.reclaimed) {
			r.note("double grant: %s got CPUs %v %s, which %s still has", pod, both, how, c.ref)
		}
	}
}

// started takes note of a container that starts. owned is empty where it owns
// nothing. Who still has an owner's CPUs is returned.
func (r *referee) started(dir string, c runs, owned topology.Set, lent bool) (late []scenario.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.cpus = r.read(dir)
	r.live[dir] = &c
	pod := c.ref.Pod()
	if owned.Empty() {
		return nil
	}
	for other, o := range r.owners {
		if both := o.cpus.And(owned); other != pod && !both.Empty() {
			r.note("double grant: %s starts with CPUs %v, which %s owns", c.ref, both, other)
		}
	}
	if old := r.owners[pod]; old == nil {
		r.owners[pod] = &holds{cpus: owned, lent: lent}
	} else if old.cpus != owned {
		r.note("I4: %s owned %v, and its container that starts %v", pod, old.cpus, owned)
	}
	for _, other := range r.live {
		if both := other.cpus.And(owned); other.ref.Pod() != pod && !both.Empty() && (!lent || !other.reclaimed) {
			late = append(late, other.ref)
		}
	}
	r.late += len(late)
	return late
}

func (r *referee) stopped(dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, dir)
}

func (r *referee) gone(pod scenario.Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owners, pod)
}

// resizing says that a pod's resize begins, or ends with other CPUs.
func (r *referee) resizing(pod scenario.Ref, now bool, cpus topology.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.owners[pod]; o != nil {
		if o.resizing = now; !now {
			o.cpus = cpus
		}
	}
}

// audit reads everything: what is not as it should be once no call fails. owned is
// what pods own as the agent says; resizing are those that others changed while
// the agent was away.
func (r *referee) audit(owned map[scenario.Ref]*holds) (wrong []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for dir, c := range r.live {
		c.cpus = r.read(dir)
		for pod, o := range owned {
			both := c.cpus.And(o.cpus)
			if pod != c.ref.Pod() && !both.Empty() && (!o.lent || !c.reclaimed) {
				wrong = append(wrong, fmt.Sprintf("I1: %s has CPUs %s of %s", c.ref, topology.FormatList(both.Members()), pod))
			}
		}
	}
	for pod, o := range r.owners {
		now := owned[pod]
		if now != nil && now.resizing { // while the agent was away
			continue
		}
		if now == nil {
			wrong = append(wrong, fmt.Sprintf("%s owns %s, and the agent says nothing", pod, topology.FormatList(o.cpus.Members())))
		} else if now.cpus != o.cpus {
			wrong = append(wrong, fmt.Sprintf("%s owns %s, and the agent says %s", pod, topology.FormatList(o.cpus.Members()), topology.FormatList(now.cpus.Members())))
		}
	}
	for pod, o := range owned {
		if r.owners[pod] != nil && o.resizing && len(wrong) == 0 {
			r.owners[pod] = &holds{cpus: o.cpus, lent: o.lent}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func (r *referee) verdict() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.wrong)
}
