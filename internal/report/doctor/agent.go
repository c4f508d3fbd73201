package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// checkConfig checks the agent's configuration, and returns it. It returns the defaults if the file is missing, cannot
// be read or is not valid.
func checkConfig(c Check, h host, file string) (Check, config.Config) {
	def := config.Default()
	data, err := h.read(file)
	switch {
	case isMissing(err):
		return c.ok("%s does not exist: the agent uses the defaults", file), def
	case err != nil:
		return c.unreadable(file, err), def
	}
	parsed, err := config.Parse(file, data)
	if err != nil {
		return c.problem("trimtab config check "+file, "%s", strings.ReplaceAll(err.Error(), "\n", "; ")), def
	}
	if old := config.Remarks(file, data); len(old) > 0 {
		return c.ok("%s is valid; %s", file, joinTexts(old, config.Problem.String)), parsed
	}
	return c.ok("%s is valid", file), parsed
}

// checkAgent asks the agent at the status socket for its state. It also returns the state; nil if no agent answers.
func checkAgent(ctx context.Context, c Check, o Options, paths config.Paths) (Check, *api.Node) {
	socket := paths.StatusSocket
	if socket == "" {
		return c.unknown("set paths.statusSocket", "the agent serves no status socket: paths.statusSocket is empty"), nil
	}
	at, err := o.host().realPath(socket)
	if err != nil {
		return c.unreadable(socket, err), nil
	}
	got, err := o.Ask(ctx, at)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return c.unreadable(socket, err), nil
	case err != nil && o.host().noneExists(socket, paths.State, paths.Key):
		return c.problem("install Trimtab (docs/install.md); if you removed it, there is nothing to do",
			"Trimtab is not on this node: no agent answers, and there is no %s, %s or %s", socket, paths.State, paths.Key), nil
	case err != nil:
		return c.problem("start the agent: trimtab agent", "no agent answers at %s", socket), nil
	}
	return c.agentResult(got), &got
}

// agentFaults lists the kinds of faults that a running agent can report. The agent reports each fault in a line of its
// status: label is the label of this line. found and do are what the check then says: what it found, and what to do. If
// an agent reports several faults, the check reports the first one in this list.
var agentFaults = []struct{ label, found, do string }{
	{"standby", "runs in standby", "stop one of the two agents, because only one may work on a node; see \"One agent on a node\" in docs/operate.md"},
	{"released", "runs, and decides nothing", "restart the agent to put its decisions in force again, or remove the agent from the node"},
	{"not in force", "runs, but a part of its configuration is not in force", "correct the configuration; the agent watches the file"},
	{"not saved", "runs, but it cannot save the state that it needs after a restart", "free disk space or repair the disk; the agent tries again by itself"},
	{
		"no cgroup", "runs, but values of running containers are not in force",
		"set cgroup.root to the path where the node's cgroup tree is mounted; in a container, mount the node's /sys/fs/cgroup at this path, and not the container's own /sys/fs/cgroup",
	},
	{
		"contested", "runs, but another program keeps changing cpuset files, which keep containers apart",
		"find the program that writes the values and stop it; until then containers may use CPUs that other pods own, see docs/operate.md",
	},
	{
		"left alone", "runs, but another program writes the agent's values",
		"find the program that writes the values and stop it; the agent writes them again after its next start, or when keeper.giveUpAfter changes",
	},
}

// agentResult returns the check with the result for a running agent: the agent's first fault, or its state.
func (c Check) agentResult(got api.Node) Check {
	faults := got.Faults(time.Now())
	for _, is := range agentFaults {
		if i := slices.IndexFunc(faults, func(f api.Line) bool { return f.Label == is.label }); i >= 0 {
			return c.problem(is.do, "%s %s: %s", got.Version, is.found, faults[i].Text)
		}
	}
	states := joinTexts(got.Attachments, api.Attachment.Text)
	if !slices.ContainsFunc(got.Attachments, api.Attachment.Live) {
		return c.problem("see the results of the checks above", "%s runs and is not attached to a runtime (%s)", got.Version, states)
	}
	for _, ctr := range got.Containers {
		for _, p := range ctr.Problems {
			if p.Key == "nri.cede" {
				return c.problem("add the field to nri.cede, or stop the other plugin from setting the field; kubectl describe pod names the plugin and the field",
					"%s runs, and the container %s/%s has a problem: %s", got.Version, ctr.Pod, ctr.Name, p.Reason)
			}
		}
	}
	found := fmt.Sprintf("%s runs, %s, %s", got.Version, states, term.Count(len(got.Containers), "container"))
	if got.Unapplied > 0 {
		found += fmt.Sprintf("; %s not in force, see trimtab status", term.Count(got.Unapplied, "value"))
	}
	return c.ok("%s", found)
}

// keySize is the size in bytes of the key with which the agent signs its records of containers.
const keySize = 32

// checkKey checks the file with the key that signs the agent's records of containers. The file must exist and have the
// size of a key, and only root may read and write it. The parameter runs is true if an agent answers.
func checkKey(c Check, h host, file string, runs bool) Check {
	info, err := h.stat(file)
	switch {
	case isMissing(err) && runs:
		return c.problem("restart the agent with write access to this path", "%s does not exist and the agent runs: the key is lost when the agent ends", file)
	case isMissing(err):
		return c.ok("%s does not exist yet; the first start creates it", file)
	case err != nil:
		return c.unreadable(file, err)
	}
	uid, _ := h.owner(info)
	switch {
	case !info.Mode().IsRegular() || info.Size() != keySize:
		return c.problem("delete the file: the agent then creates a new key at its next start, and decides again for containers whose records are signed with the old key",
			"%s is not a key: %d bytes instead of %d", file, info.Size(), keySize)
	case info.Mode().Perm()&0o077 != 0 || uid != 0:
		return c.problem("chown root "+file+"; chmod 600 "+file, "users other than root can read or write %s: %s", file, h.describe(info))
	}
	return c.ok("%s is %s", file, h.describe(info))
}

// checkState checks that the agent can write to its state directory or can create it, and that only root can write
// there.
func checkState(c Check, h host, dir string) Check {
	where := dir
	info, err := h.stat(where)
	for isMissing(err) && where != "/" {
		where = filepath.Dir(where) // the agent creates missing directories
		info, err = h.stat(where)
	}
	if err != nil {
		return c.unreadable(where, err)
	}
	if !info.IsDir() {
		return c.problem("remove this file, or set paths.state to another path", "%s is not a directory", where)
	}
	at, err := h.realPath(where)
	if err != nil {
		return c.unreadable(where, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return c.unreadable(where, err)
	}
	uid, _ := h.owner(info)
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		return c.problem("set paths.state to a directory that is writable", "%s is on a file system mounted read-only", where)
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&0o1000 == 0 || uid != 0:
		return c.problem("chown root "+where+"; chmod o-w "+where, "users other than root can write to %s: %s", where, h.describe(info))
	case where != dir:
		return c.ok("%s does not exist yet; the first start creates it", dir)
	}
	return c.ok("%s is %s", dir, h.describe(info))
}
