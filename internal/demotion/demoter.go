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

// Interval is the time between two runs of the demoter. Because Interval is one second, Options.BytesPerSecond is also
// the limit for each run.
const Interval = time.Second

const (
	// containersPerRun limits the containers that one run reads, so that a run does not take longer on nodes with many
	// containers. The next run reads the next containers.
	containersPerRun = 32
	// minAmount is the smallest amount of memory that the demoter asks the kernel to move, in bytes.
	minAmount = 1 << 20
	// pauseAfterPartial is how long the demoter makes no request for a container after the kernel moved less memory
	// than requested.
	pauseAfterPartial = time.Minute
)

// Options limit how much memory the demoter asks the kernel to move.
type Options struct {
	// SlowPercent is the percentage of a container's anonymous memory that should be in slow memory.
	SlowPercent int
	// BytesPerSecond limits how many bytes per second are moved from or to each memory node. If it is 0, no memory is
	// moved.
	BytesPerSecond int64
}

// Container is a running container that has fast and slow memory nodes.
type Container struct {
	Dir        string // the directory of the container's cgroup
	Fast, Slow []int  // the container's fast and slow memory nodes
}

// Result is the state of a container after the last run that read it.
type Result struct {
	Anonymous int64  // the container's anonymous memory on its memory nodes, in bytes
	Slow      int64  // the part of Anonymous in slow memory, in bytes
	Moved     int64  // bytes of the container that were moved to slow memory since the agent's start
	Reason    string // why the demoter does not ask the kernel to move memory of this container; "" if nothing prevents it
}

// Report is the state of the node after the last run.
type Report struct {
	Enabled    bool              // the demoter runs: the configuration enables the demotion of memory
	Reason     string            // why the demoter moves no memory of any container; "" if nothing prevents it
	Moved      int64             // bytes that were moved to slow memory since the agent's start
	Containers map[string]Result // by container id
}

// Demoter asks the kernel to move cold memory. Its methods may be called by several goroutines concurrently.
type Demoter struct {
	deps Dependencies

	runMu       sync.Mutex           // held during a run; guards lastRead, pausedUntil and refusal
	lastRead    string               // the id of the last container that the last run read
	pausedUntil map[string]time.Time // by container id; the demoter makes no request for the container before this time
	refusal     string               // why the kernel refused a request to reclaim; "" if it refused none

	mu     sync.Mutex // guards the report
	report Report
}

// Dependencies are the files and functions that a demoter uses.
type Dependencies struct {
	Files Files        // reads the node's files in /sys and /proc
	Tree  *cgroup.Tree // the cgroups of the containers
	// Reclaim asks the kernel to reclaim bytes of a cgroup's anonymous memory. The error is EAGAIN if the kernel
	// reclaimed less, and EINVAL if the kernel cannot reclaim anonymous memory only.
	Reclaim  func(dir string, bytes int64) error
	Distance func(from, to int) int // the NUMA distance between two memory nodes
	Now      func() time.Time
}

// New makes a Demoter, which does nothing before Run.
func New(p Dependencies) *Demoter { return &Demoter{deps: p, pausedUntil: map[string]time.Time{}} }

// Run asks the kernel once to move cold memory of at most containersPerRun containers. The map of containers has their
// ids as keys.
func (d *Demoter) Run(o Options, containers map[string]Container) Report {
	d.runMu.Lock()
	defer d.runMu.Unlock()
	h, reason := d.checkHost()
	report := Report{Enabled: true, Reason: reason, Moved: d.Report().Moved, Containers: d.earlierResults(containers)}
	if reason != "" {
		return d.publish(report)
	}
	left := map[int]int64{} // by memory node; the bytes that this run may still move from or to the node
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

// checkHost reads the state of the node. The result reason says why the demoter must not ask the kernel to move memory;
// it is "" if the demoter may ask.
func (d *Demoter) checkHost() (h host, reason string) {
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

// nextContainers returns the ids of the containers that this run reads. In the order of ids, the run continues after
// the containers of the last run. After the last id, it begins again with the first id.
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

// demote asks the kernel to move memory of one container. The parameter left has the bytes that this run may still move
// from or to each memory node; demote subtracts the bytes that it requests.
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
		d.refusal = "the kernel cannot reclaim anonymous memory without page cache (Linux 6.16 can): " + err.Error()
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

// memory has the amounts of a container's memory that the kernel could reclaim, in bytes.
type memory struct {
	fast, slow int64 // anonymous memory on the container's fast and slow memory nodes
	cache      int64 // page cache on all memory nodes except the container's fast nodes
}

// measure reads how much memory a container has on its fast and slow memory nodes.
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

// checkSideEffects returns an error if a request to reclaim memory of a container could have another effect than moving
// pages to the container's slow nodes. The kernel could drop pages, swap pages, or move them to nodes that the
// container may not use.
func (d *Demoter) checkSideEffects(h host, c Container, m memory) error {
	if err := h.checkDemotionTargets(c); err != nil {
		return err
	}
	if m.cache > 0 {
		return fmt.Errorf("the kernel would drop page cache: the container has %d bytes of page cache outside of its fast memory nodes", m.cache)
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

// earlierResults returns the results of earlier runs for the containers that still exist. It also deletes the removed
// containers from pausedUntil.
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

// Stop deletes the results of the last run. The agent calls it after the configuration disabled the demotion of memory.
// A later Run makes requests again, even if the kernel refused a request before.
func (d *Demoter) Stop() {
	d.runMu.Lock()
	defer d.runMu.Unlock()
	d.refusal = ""
	d.publish(Report{Moved: d.Report().Moved})
}

// Report returns the report of the last run. It does not wait until a present run ends.
func (d *Demoter) Report() Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report
}
