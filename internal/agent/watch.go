package agent

import (
	"context"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// watchDrift runs until ctx ends. If another program overwrites a cgroup file that the agent has written, watchDrift
// writes the agent's value again.
func (a *Agent) watchDrift(ctx context.Context) error {
	w, err := a.cgroupWatcher()
	if err != nil {
		a.log.Warn("the agent cannot watch cgroup files; it polls them", logkey.Err, err)
	}
	if w == nil {
		return a.conductor.Watch(ctx, nil)
	}
	defer w.Close()
	return a.conductor.Watch(ctx, w)
}

// cgroupWatcher returns a watcher of the cgroup files. It returns nil if Options.Tree is set and Options.Watch is not.
func (a *Agent) cgroupWatcher() (cgroup.Watcher, error) {
	switch {
	case a.opt.Watch != nil:
		return a.opt.Watch()
	case a.opt.Tree != nil:
		return nil, nil //nolint:nilnil // a tree of a test may have no watcher, which is no error
	}
	return cgroup.Watch(a.opt.Config.Cgroup.Root)
}
