package agent

import (
	"time"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/topology"
)

// newDemoter makes the Demoter, which makes the kernel move cold memory of containers to slower memory nodes. It
// returns nil in observe mode, and on a simulated node without memory tiers.
func (a *Agent) newDemoter(m *topology.Machine) *demotion.Demoter {
	files := a.opt.MemoryTiers
	switch {
	case isObserveMode(a.opt.Config), files == nil && a.opt.Tree != nil:
		return nil
	case files == nil:
		files = demotion.Disk{Sys: a.opt.Config.Paths.Sys, Proc: "/proc"}
	}
	return demotion.New(demotion.Dependencies{Files: files, Tree: a.keeper.Tree(), Reclaim: a.keeper.ReclaimAnonymous, Distance: distancesOf(m), Now: time.Now})
}

// distancesOf returns a function that returns the distance between two memory nodes, given by their kernel ids. If the
// machine lacks one of the nodes, the distance is maxDistance.
func distancesOf(m *topology.Machine) func(from, to int) int {
	return func(from, to int) int {
		a, known := m.NodeIndex(from)
		b, also := m.NodeIndex(to)
		if !known || !also {
			return maxDistance
		}
		return m.Distance(a, b)
	}
}

// maxDistance is the highest distance that firmware can report.
const maxDistance = 255

// demotionOptions returns the demotion options of a valid configuration; the zero Options if demotion is disabled.
func demotionOptions(c config.Config) (o demotion.Options) {
	d := c.Placement.Demotion
	if c.Placement.Policy == "topology-aware" && d.Enabled {
		o = demotion.Options{SlowPercent: d.SlowPercent, BytesPerSecond: int64(d.MebibytesPerSecond) << 20}
	}
	return o
}
