package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	if none, err := noState(c); err != nil || none {
		return api.Released{Nothing: none}, errors.Join(err, tidyGroups(c))
	}
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
		return r, lost(c, dir.Path(originalsName))
	}
	copied := k.Originals.Copied()
	r = conductor.Released(k.ReleaseAll())
	for _, o := range copied {
		r.Stale = append(r.Stale, api.Kept{
			Owner: o.Owner, Cgroup: o.Dir, Setting: o.Field.String(), Why: "no running agent can make the runtime change it",
		})
	}
	return r, tidyGroups(c)
}

// noState reports whether no agent has run: there is neither a state directory, which a release must not make, nor a
// key. The error is that only the state directory is gone.
func noState(c config.Config) (bool, error) {
	if _, err := os.Stat(c.Paths.State); c.Paths.State == "" || !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if ran(c) {
		return false, lost(c, c.Paths.State)
	}
	return true, nil
}

// lost is the error of original values that are lost with a file or directory.
func lost(c config.Config, missing string) error {
	return fmt.Errorf("release without an agent: %w: there is no %s, and an agent has run here (%s is there): "+
		"values of pods and containers may remain until their cgroups are removed", keeper.ErrUnknown, missing, c.Paths.Key)
}

// tidyGroups removes the resctrl groups of an agent.
func tidyGroups(c config.Config) error {
	groups, err := resctrl.OpenRoot(c.Paths.Resctrl)
	if err != nil {
		return nil // without the mount there are no groups
	}
	defer groups.Close()
	return resctrl.New(groups).Tidy()
}
