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

// referee checks a node on which calls fail. It takes owners from the agent's status at their start, and the values in
// force from the kernel. While calls fail it accepts no write that gives a container a CPU that another owns. If the
// kernel refused to shrink other cpusets before an owner started, the agent must report that and repair it later.
type referee struct {
	cgroup.FS
	kernel  *kernel.Cgroups
	version cgroup.Version

	mu     sync.Mutex
	ours   map[string]int   // the agent's unfinished writes, by file
	live   map[string]*runs // by cgroup
	owners map[scenario.Ref]*holds
	wrong  []string
	writes int
	late   int // containers that still had an owner's CPUs at its start
}

// runs is a running container with its CPUs.
type runs struct {
	ref       scenario.Ref
	cpus      topology.Set
	reclaimed bool
}

// holds is an owner with its CPUs.
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

// WriteFile passes on a write of the agent.
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

// written judges a write to the CPU list of a running container: the added CPUs must not belong to another pod.
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
	if mine != nil && mine.resizing { // also if the runtime wrote what the agent could not write
		mine.cpus = r.heldLocked(c.ref.Pod())
	}
	if r.ours[file] == 0 {
		return // the runtime writes its stored copy, which is outdated while the agent is stopped
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

// taken checks that no other container has CPUs that a running pod got.
func (r *referee) taken(pod scenario.Ref, got topology.Set, how string) {
	for _, c := range r.live {
		if both := c.cpus.And(got); c.ref.Pod() != pod && !both.Empty() && (!r.owners[pod].lent || !c.reclaimed) {
			r.note("double grant: %s got CPUs %v %s, which %s still has", pod, both, how, c.ref)
		}
	}
}

// started notes a container that starts with the CPUs that it owns. It returns the containers that still have an
// owner's CPUs.
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

// resizing notes that a pod's resize begins, or that it ended with other CPUs.
func (r *referee) resizing(pod scenario.Ref, now bool, cpus topology.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.owners[pod]; o != nil {
		if o.resizing = now; !now {
			o.cpus = cpus
		}
	}
}

// audit reads all cpusets and returns what is wrong once no call fails. owned has the owners that the agent reports,
// resizing the pods that the kubelet resized while the agent was stopped.
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
		if now != nil && now.resizing { // while the agent was stopped
			continue
		}
		if now == nil {
			wrong = append(wrong, fmt.Sprintf("%s owns %s, and the agent reports nothing", pod, topology.FormatList(o.cpus.Members())))
		} else if now.cpus != o.cpus {
			wrong = append(wrong, fmt.Sprintf("%s owns %s, and the agent reports %s", pod, topology.FormatList(o.cpus.Members()), topology.FormatList(now.cpus.Members())))
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
