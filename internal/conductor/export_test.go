package conductor

import (
	"context"
	"maps"

	"github.com/trimtab/trimtab/internal/placement"
)

// Round has pods decided ahead once, and waits until they are.
func (a *Ahead) Round(ctx context.Context) {
	a.comparePods(ctx)
	a.decidingPods.Wait()
}

// Expects returns the CPUs that are kept for containers that no runtime has reported, by pod UID and
// container.
func Expects(c *Conductor) map[string]string {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	out := map[string]string{}
	for _, g := range c.node.state.ExpectedGrants() {
		out[g.Key.PodUID+"/"+g.Key.Container] = c.node.state.Machine.Format(g.CPUs)
	}
	return out
}

// GiveCPUClasses gives CPUs their classes now, without the timer.
func GiveCPUClasses(c *Conductor) { c.cpuClasses.run(context.Background()) }

// Ledger is who has what on a node.
type Ledger struct {
	Grants, Reserved []placement.Grant
	Devices          map[placement.Key][]string
	Expected         []string // UIDs of pods
}

// LedgerOf returns who has what by the state.
func LedgerOf(c *Conductor) Ledger {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	s := c.node.state
	return Ledger{s.Grants(), s.ReservedGrants(), maps.Clone(s.Devices()), s.ExpectedPods()}
}
