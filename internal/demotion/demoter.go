package demotion

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Interval is the time between two runs. It is one second, so that a limit per second is a limit per run.
const Interval = time.Second

const (
	// containersPerRun limits the containers that one run reads, so that its work does not grow with the node. The
	// next run reads the next containers.
	containersPerRun = 32
	// minAmount is the smallest amount that a run moves, in bytes.
	minAmount = 1 << 20
	// pauseAfterPartial is the pause for a container after the kernel moved less memory than requested.
	pauseAfterPartial = time.Minute
)

// Options limit how much memory the demoter asks the kernel to move.
type Options struct {
	// SlowPercent is the part of a container's anonymous memory that should be in slow memory.
	SlowPercent int
	// BytesPerSecond limits the memory that is moved from or to one memory node; 0 means that none is moved.
	BytesPerSecond int64
}

// Container is a running container that has fast and slow memory nodes.
type Container struct {
	Dir        string // the container's cgroup
	Fast, Slow []int  // memory nodes
}

// Result is the state of a container after the last run that read it.
type Result struct {
	Anonymous int64  // the container's anonymous memory on its memory nodes, in bytes
	Slow      int64  // the part of Anonymous in slow memory, in bytes
	Moved     int64  // bytes of the container that were moved since the agent's start
	Reason    string // the reason why the kernel is not asked to move memory of the container; "" for none
}

// Report is the state of the node after the last run.
type Report struct {
	Enabled    bool
	Reason     string            // the reason why the kernel is not asked to move memory of the node; "" for none
	Moved      int64             // bytes that were moved since the agent's start
	Containers map[string]Result // by container id
}

// Demoter asks the kernel to move cold memory. Its methods may be called by several goroutines concurrently.
type Demoter struct {
	deps Dependencies

	runMu       sync.Mutex // held while files are read and written; guards lastRead, pausedUntil and refusal
	lastRead    string     // the container that was read last
	pausedUntil map[string]time.Time
	refusal     string // the reason why the kernel accepts no request; "" for none

	mu     sync.Mutex // guards the report
	report Report
}

// Dependencies are the files and functions that a demoter uses.
type Dependencies struct {
	Files Files
	Tree  *cgroup.Tree
	// Reclaim asks the kernel to reclaim bytes of a cgroup's anonymous memory, as cgroup.Tree.ReclaimAnonymous does.
	Reclaim  func(dir string, bytes int64) error
	Distance func(from, to int) int // between memory nodes
	Now      func() time.Time
}

// New makes a Demoter, which does nothing before Run.
func New(p Dependencies) *Demoter { return &Demoter{deps: p, pausedUntil: map[string]time.Time{}} }

// Run asks the kernel once to move cold memory of some of the containers. The keys of containers are their ids.
func (d *Demoter) Run(o Options, containers map[string]Container) Report {
	d.runMu.Lock()
	defer d.runMu.Unlock()
	h, reason := d.available()
	report := Report{Enabled: true, Reason: reason, Moved: d.Report().Moved, Containers: d.earlierResults(containers)}
	if reason != "" {
		return d.publish(report)
	}
	left := map[int]int64{} // by memory node
	for _, id := range d.nextContainers(containers) {
		c := containers[id]
		for _, node := range slices.Concat(c.Fast, c.Slow) {
			if _, known := left[node]; !known {
				left[node] = o.BytesPerSecond
			}
		}
		r := d.demote(h, o, id, c, left)
		report.Moved += r.Moved
		r.Moved += report.Containers[id].Moved
		report.Containers[id] = r
		if report.Reason = d.refusal; d.refusal != "" {
			break
		}
	}
	return d.publish(report)
}

// available returns the state of the node. reason is the reason why the demoter must not ask the kernel to move memory;
// "" for none.
func (d *Demoter) available() (h host, reason string) {
	if d.deps.Tree.Version != cgroup.V2 {
		return h, "cgroup v1 has no memory.reclaim"
	}
	if d.refusal != "" {
		return h, d.refusal
	}
	h, err := readHost(d.deps.Files, d.deps.Distance)
	if err != nil {
		return h, err.Error()
	}
	return h, ""
}

// nextContainers returns the ids of the containers that this run reads. In the order of ids, they follow the containers
// of the last run.
func (d *Demoter) nextContainers(containers map[string]Container) []string {
	all := slices.Sorted(maps.Keys(containers))
	after, _ := slices.BinarySearch(all, d.lastRead+"\x00")
	all = slices.Concat(all[after:], all[:after])
	all = all[:min(containersPerRun, len(all))]
	if len(all) > 0 {
		d.lastRead = all[len(all)-1]
	}
	return all
}

// demote asks the kernel to move memory of one container. left has the bytes that may still be moved from or to each
// memory node in this run; demote subtracts the bytes that it requests.
func (d *Demoter) demote(h host, o Options, id string, c Container, left map[int]int64) Result {
	before, err := d.measure(c)
	if err == nil {
		err = d.checkSideEffects(h, c, before)
	}
	r := Result{Anonymous: before.fast + before.slow, Slow: before.slow}
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	ask := r.Anonymous*int64(o.SlowPercent)/100 - r.Slow
	for _, node := range slices.Concat(c.Fast, c.Slow) {
		ask = min(ask, left[node])
	}
	if ask < minAmount || d.deps.Now().Before(d.pausedUntil[id]) {
		return r
	}
	if err := h.checkRoom(c.Slow, ask); err != nil {
		r.Reason = err.Error()
		return r
	}
	for _, node := range slices.Concat(c.Fast, c.Slow) {
		left[node] -= ask
	}
	switch err := d.deps.Reclaim(c.Dir, ask); {
	case errors.Is(err, syscall.EAGAIN): // the kernel reclaimed less
		d.pausedUntil[id] = d.deps.Now().Add(pauseAfterPartial)
	case errors.Is(err, syscall.EINVAL):
		d.refusal = "the kernel cannot reclaim anonymous memory alone, which needs Linux 6.16, and would drop page cache: " + err.Error()
		return r
	case err != nil:
		r.Reason = err.Error()
		return r
	}
	if after, err := d.measure(c); err == nil {
		r.Anonymous, r.Slow, r.Moved = after.fast+after.slow, after.slow, max(after.slow-before.slow, 0)
	}
	return r
}

// memory is the memory of a container that the kernel could reclaim, in bytes: anonymous memory on its fast and on its
// slow nodes, and page cache outside of its fast nodes.
type memory struct{ fast, slow, cache int64 }

// measure reads the memory of a container.
func (d *Demoter) measure(c Container) (m memory, err error) {
	of, err := d.deps.Tree.NodeMemory(c.Dir)
	for node, has := range of {
		if slices.Contains(c.Fast, node) {
			m.fast += has.Anonymous
			continue
		}
		m.cache += has.PageCache
		if slices.Contains(c.Slow, node) {
			m.slow += has.Anonymous
		}
	}
	return m, err
}

// checkSideEffects returns an error if the kernel would drop or swap pages of a container.
func (d *Demoter) checkSideEffects(h host, c Container, m memory) error {
	if err := h.checkDemotionTargets(c); err != nil {
		return err
	}
	if m.cache > 0 {
		return fmt.Errorf("the kernel would drop page cache: the container has %d bytes outside of its fast memory nodes", m.cache)
	}
	if !h.hasSwap {
		return nil
	}
	switch may, err := d.deps.Tree.MaySwap(c.Dir); {
	case err != nil:
		return err
	case may:
		return errors.New("the kernel would swap pages: the node has swap, and memory.swap.max is not 0")
	}
	return nil
}

// earlierResults returns the last results of the containers that still exist. It forgets removed containers.
func (d *Demoter) earlierResults(containers map[string]Container) map[string]Result {
	for id := range d.pausedUntil {
		if _, there := containers[id]; !there {
			delete(d.pausedUntil, id)
		}
	}
	before, all := d.Report().Containers, map[string]Result{}
	for id := range containers {
		all[id] = before[id]
	}
	return all
}

// publish stores a report and returns it.
func (d *Demoter) publish(r Report) Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report = r
	return r
}

// Stop forgets the results, after the configuration disabled the demotion of memory. A later Run checks again what the
// kernel supports.
func (d *Demoter) Stop() {
	d.runMu.Lock()
	defer d.runMu.Unlock()
	d.refusal = ""
	d.publish(Report{Moved: d.Report().Moved})
}

// Report returns the report of the last run. It does not wait for a run.
func (d *Demoter) Report() Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report
}
