package conductor

import "context"

// Round has pods decided ahead once, and waits until they are.
func (a *Ahead) Round(ctx context.Context) {
	a.round(ctx)
	a.busy.Wait()
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
