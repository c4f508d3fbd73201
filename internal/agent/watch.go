package agent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// guard has values that others change put right, until ctx ends.
func (a *Agent) guard(ctx context.Context) error {
	w, err := a.watcher()
	if err != nil {
		a.log.Warn("cgroup files cannot be watched; they are looked at in turn", logkey.Err, err)
	}
	if w == nil {
		return a.conductor.Watch(ctx, nil)
	}
	defer w.Close()
	files := written{w, make(chan string)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { files.pass(ctx); return nil })
	group.Go(func() error { return a.conductor.Watch(ctx, files) })
	return group.Wait()
}

// watcher watches the tree's files; nil where nobody can tell of a given tree's.
func (a *Agent) watcher() (bypass.Watcher, error) {
	switch {
	case a.opt.Watch != nil:
		return a.opt.Watch()
	case a.opt.Tree != nil:
		return nil, nil //nolint:nilnil // a tree of a test may have no watcher, which is no error
	}
	return bypass.Watch(a.opt.Config.Cgroup.Root)
}

// written tells the conductor which files were written to.
type written struct {
	bypass.Watcher
	files chan string
}

// Written returns the files; "" where some were missed.
func (w written) Written() <-chan string { return w.files }

func (w written) pass(ctx context.Context) {
	for {
		var file string
		select {
		case <-ctx.Done():
			return
		case n := <-w.Notices():
			switch n.Happening {
			case bypass.Written:
				file = n.Path
			case bypass.Overflow:
			default:
				continue
			}
		}
		select {
		case <-ctx.Done():
			return
		case w.files <- file:
		}
	}
}
