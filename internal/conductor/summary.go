package conductor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// Summary is the node in numbers. It formats nothing: events wait for the lock
// it holds.
func (c *Conductor) Summary() api.Summary {
	tally := c.keeper.Tally()
	n := api.Summary{
		Drift: tally.Drift, Kernel: map[string]uint64{}, Classes: map[string]int{}, Unapplied: map[api.Missing]int{},
	}
	_, n.Fights, n.Contested = c.keeper.Contests(0)
	for s, count := range tally.Results {
		n.Kernel[s.String()] = count
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n.LastSync, n.Attached = c.synced, len(c.runtimes) > 0
	n.WithoutCgroup = len(c.absentLocked(len(c.presence.faults)))
	n.Exclusive = c.state.Exclusive().Len()
	n.Pools, n.PoolMembers = c.poolSizes()
	classes := map[intent.Class]int{}
	for _, id := range c.state.Containers() {
		ctr := c.state.Container(id)
		if !ctr.Alive() {
			continue
		}
		if p := c.state.Pod(ctr.PodID); p != nil {
			classes[p.Intent.Class.V]++
		}
		c.addMissing(n.Unapplied, id, c.state.Values(ctr))
	}
	for _, id := range c.state.Pods() {
		c.addMissing(n.Unapplied, id, c.state.Pod(id).Values)
	}
	n.Specs = specCounts(c.state)
	for class := intent.None; class <= intent.Reclaimed; class++ {
		n.Classes[class.String()] = classes[class]
	}
	return n
}

// addMissing counts the values of one owner that are not in force.
func (c *Conductor) addMissing(into map[api.Missing]int, owner string, values []lifecycle.Value) {
	for _, v := range values {
		d, sent := c.tracks[owner].of(v)
		switch {
		case !sent || d.missing == "" && !d.applied:
			into[c.presence.missingNow(owner, api.NotYet)]++
		case !d.applied:
			into[c.presence.missingNow(owner, d.missing)]++
		}
	}
}

// The pools that pods give a name, and those bound to a NUMA node, are counted
// together: there may be any number of them.
const (
	namedPools = "named"
	boundPools = "bound"
)

// poolSizes counts the CPUs of each pool on each NUMA node, and the live
// containers of each.
func (c *Conductor) poolSizes() (sizes []api.PoolSize, members map[string]int) {
	pools := c.state.Policy.Pools
	cpus := map[string]topology.Set{
		"reserved": pools.Reserved, placement.Rest.String(): c.state.PoolCPUs(placement.Rest),
		namedPools: {}, boundPools: {},
	}
	members = map[string]int{placement.Rest.String(): 0, placement.System.String(): 0, namedPools: 0, boundPools: 0}
	for _, p := range c.state.PoolShares() {
		name := p.Pool.String()
		switch {
		case p.Which.Bound:
			name = boundPools
		case p.Which.Name != "" && p.Pool == placement.Shared:
			name = namedPools
		}
		members[name] += p.Members
		if p.Pool == placement.Shared || p.Pool == placement.Reclaimed {
			cpus[name] = cpus[name].Union(p.CPUs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cpus)) {
		for _, n := range c.state.Machine.Nodes {
			sizes = append(sizes, api.PoolSize{Pool: name, Node: n.ID, CPUs: cpus[name].And(n.CPUs).Len()})
		}
	}
	return sizes, members
}

// stuck is how long one event may take before it counts as never ending. A
// lower memory limit may make the kernel reclaim for many seconds.
const stuck = 2 * time.Minute

// Alive reports whether the conductor still takes events: its lock is to be had
// before ctx ends, and no event has been under way for ever. Nothing outside of
// this process has a say in it.
func (c *Conductor) Alive(ctx context.Context) error {
	if s := c.since.Load(); s != 0 {
		if took := c.uptime() - time.Duration(s); took > stuck {
			return fmt.Errorf("an event has been under way for %v", took.Round(time.Second))
		}
	}
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !c.mu.TryLock() {
		select {
		case <-ctx.Done():
			return errors.New("the conductor does not answer")
		case <-look.C:
		}
	}
	c.mu.Unlock()
	return nil
}

// Ready reports why the node is not kept yet: nil where a runtime is attached
// and what it runs has been taken over.
func (c *Conductor) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.runtimes) == 0:
		return errors.New("no runtime is attached")
	case c.synced.IsZero():
		return errors.New("what the runtime runs has not been taken over")
	}
	return c.noCgroupLocked()
}
