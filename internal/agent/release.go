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

// releaseRuntimeTimeout is the maximum time for which a release waits for the runtime. The runtime stores copies of the
// containers' resources, and must update these copies with the restored values.
const releaseRuntimeTimeout = time.Minute

// releaseServerTimeout is the maximum time for which a release waits until the agent has removed what it wrote to the
// API server.
const releaseServerTimeout = 10 * time.Second

// Release restores everything that the agent changed. After a release the agent decides nothing until its next start.
// Until then, changes of the configuration have no effect.
func (a *Agent) Release(ctx context.Context) (api.Released, error) {
	r, err := a.settings.release(ctx)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, releaseServerTimeout)
	defer cancel()
	if err := kube.Release(ctx, a.cluster.services...); err != nil {
		r.Cluster = err.Error()
	}
	return r, nil
}

// hasRun reports whether an agent with this configuration has run before: the key file paths.key then exists.
func hasRun(c config.Config) bool {
	_, err := os.Stat(c.Paths.Key)
	return c.Paths.Key != "" && err == nil
}

// Release restores everything that the running agent changed.
func (s source) Release(ctx context.Context) (api.Released, error) { return s.a.Release(ctx) }

// ReleaseAlone restores the kernel values that an ended agent changed. It returns an error while an agent runs. It does
// not update the runtime's stored copies of the resources.
func ReleaseAlone(c config.Config) (r api.Released, err error) {
	if none, err := neverRan(c); err != nil || none {
		return api.Released{NeverRan: none}, errors.Join(err, removeResctrlGroups(c))
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
	dir := stateDirectory(nil, c.Paths.State)
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
		return r, fmt.Errorf("release without an agent: %w (%s), but does not answer: name the agent's status socket with --socket, or stop the agent", errInUse, c.Paths.State)
	}
	k := keeper.New(tree)
	if err := k.Originals.Load(journal, earlier); err != nil {
		return r, fmt.Errorf("read the original values (paths.state): %w", err)
	}
	if earlier == nil && hasRun(c) {
		return r, originalsLost(c, dir.Path(originalsFile))
	}
	copied := k.Originals.Copied()
	r = conductor.SumReleased(k.ReleaseAll())
	given, failed, err := releaseCPUClasses(c, dir)
	r.Restored, r.Failed = r.Restored+given, append(r.Failed, failed...)
	for _, o := range copied {
		r.Stale = append(r.Stale, api.NotRestored{
			Owner: o.Owner, Cgroup: o.Dir, Setting: o.Field.String(), Why: "the runtime still stores the agent's value, and only a running agent can make the runtime change it",
		})
	}
	return r, errors.Join(err, removeResctrlGroups(c))
}

// neverRan reports whether no agent has run: there is neither a state directory nor a key. It returns an error if there
// is a key but no state directory, because the original values are then lost.
func neverRan(c config.Config) (bool, error) {
	if _, err := os.Stat(c.Paths.State); c.Paths.State == "" || !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if hasRun(c) {
		return false, originalsLost(c, c.Paths.State)
	}
	return true, nil
}

// originalsLost returns the error that original values cannot be restored because their file or directory is missing.
func originalsLost(c config.Config, missing string) error {
	return fmt.Errorf("release without an agent: %w: %s does not exist, although an agent has run on this node (%s exists): "+
		"pods and containers may keep the agent's values until they end", keeper.ErrOriginalUnknown, missing, c.Paths.Key)
}

// removeResctrlGroups removes the resctrl groups that an agent made.
func removeResctrlGroups(c config.Config) error {
	groups, err := resctrl.OpenRoot(c.Paths.Resctrl)
	if err != nil {
		return nil // without a mounted resctrl there are no groups
	}
	defer groups.Close()
	return resctrl.New(groups).RemoveUnownedGroups()
}
