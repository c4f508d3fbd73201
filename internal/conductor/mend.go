package conductor

import (
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Mend writes again what others have undone at pods' own cgroups, and tells of
// it. systemd writes every property it knows of a slice when its configuration
// is reloaded, a quota for one, and nobody is told. Containers are not looked
// at: their runtime tells of its updates. Run calls it now and then; it costs a
// look at each value decided for a pod.
func (c *Conductor) Mend() {
	c.turn.Lock()
	defer c.turn.Unlock()
	w := &work{ev: &lifecycle.Event{Kind: lifecycle.Configure}}
	_ = c.guard(w, func() error {
		for _, id := range c.valuedPods() {
			for _, o := range c.keeper.Settle(id) {
				if o.State != keeper.Same {
					w.wrote = append(w.wrote, o)
				}
			}
		}
		c.confirm(w)
		return nil
	})
	for _, o := range w.wrote {
		if o.State == keeper.Applied {
			c.log.Warn("written again what others had undone", logkey.Owner, o.Target.Owner,
				logkey.Field, o.Value.Field.String(), logkey.Value, o.Value.String())
		}
	}
}

// valuedPods are the pods that have values of their own.
func (c *Conductor) valuedPods() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for _, id := range c.state.Pods() {
		if p := c.state.Pod(id); !p.Stopped && len(p.Values) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
