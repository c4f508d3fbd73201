package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/resctrl"
)

// copiesTimeout is how long a release waits until the runtime's stored copies are updated.
const copiesTimeout = time.Minute

// serverTimeout is how long a release waits until the objects at the API server are restored.
const serverTimeout = 10 * time.Second

// Release restores everything that the agent changed. After it the agent decides nothing until its next
// start; it still reads a changed configuration, which has no effect.
func (a *Agent) Release(ctx context.Context) (api.Released, error) {
	r, err := a.settings.release(ctx)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	if err := kube.Release(ctx, a.cluster.services...); err != nil {
		r.Cluster = err.Error()
	}
	return r, nil
}

// ran reports whether an agent has run with a configuration: then its key exists.
func ran(c config.Config) bool {
	_, err := os.Stat(c.Paths.Key)
	return c.Paths.Key != "" && err == nil
}

// Release asks the running agent to restore what it changed.
func (s source) Release(ctx context.Context) (api.Released, error) { return s.a.Release(ctx) }

// ReleaseAlone restores the values that an ended agent left in the kernel. It fails while an agent runs. It
// does not change the runtime's stored copies.
func ReleaseAlone(c config.Config) (r api.Released, err error) {
	files, err := cgroup.OpenRoot(c.Cgroup.Root)
	if err != nil {
		return r, fmt.Errorf("open the cgroup tree (cgroup.root): %w", err)
	}
	defer files.Close()
	tree, err := treeOf(files, c.Cgroup)
	if err != nil {
		return r, err
	}
	dir := directory(nil, c.Paths.State)
	if err := dir.Prepare(); err != nil {
		return r, fmt.Errorf("open the state directory %s (paths.state): %w", c.Paths.State, err)
	}
	journal, earlier, locked, err := openOriginals(dir, slog.New(slog.DiscardHandler))
	if journal != nil {
		defer journal.Close()
	}
	if err != nil && earlier == nil {
		return r, fmt.Errorf("read the original values (paths.state): %w", err)
	}
	if !locked {
		return r, fmt.Errorf("%w (%s): ask it to release, or stop it", errInUse, c.Paths.State)
	}
	k := keeper.New(tree)
	if err := k.Originals.Load(journal, earlier); err != nil {
		return r, fmt.Errorf("read the original values (paths.state): %w", err)
	}
	if earlier == nil && ran(c) {
		return r, fmt.Errorf("release without an agent: %w: there is no %s, and an agent has run here (%s is there): "+
			"values of pods and containers may remain until their cgroups are removed", keeper.ErrUnknown, dir.Path(originalsName), c.Paths.Key)
	}
	copied := k.Originals.Copied()
	r = conductor.Released(k.ReleaseAll())
	for _, o := range copied {
		r.Stale = append(r.Stale, api.Kept{
			Owner: o.Owner, Cgroup: o.Dir, Setting: o.Field.String(), Why: "no running agent can make the runtime change it",
		})
	}
	if groups, err := resctrl.OpenRoot(c.Paths.Resctrl); err == nil {
		defer groups.Close()
		return r, resctrl.New(groups).Tidy()
	}
	return r, nil
}
