package doctor

import (
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/report/api"
)

// asked reports whether a runtime proxy asks the agent.
func (n *node) asked() bool { return n.config.Attach == "hooks" }

// checkHookServers tells which hook servers are in force: as the agent sees them
// where one runs, else by reading their files.
func (n *node) checkHookServers() Check {
	c := Check{Name: "hook servers", Why: "a hook server decides with Trimtab about every pod; where its failure-policy is Fail and it does not answer, no pod starts"}
	dir := n.config.HookServers.Directory
	if dir == "" {
		return c.ok("nobody is asked (hookServers.directory is empty)")
	}
	var found *api.HookServers
	if n.agent != nil {
		found = n.agent.HookServers
	}
	if found == nil {
		at, err := n.host.real(dir)
		if err != nil && !missing(err) {
			return c.unseen(dir, err)
		}
		found = readHookServers(at)
		found.Error = strings.ReplaceAll(found.Error, at, dir) // as the node names it
	}
	const do = "mend the file, or remove it; the agent follows the directory"
	if found.Error != "" {
		return c.problem(do, "%s", found.Error)
	}
	var states []string
	bad := false
	for _, s := range found.Servers {
		states = append(states, s.File+": "+s.State())
		bad = bad || s.Error != "" || s.Resting
	}
	switch {
	case bad:
		return c.problem(do, "%s", join(states))
	case len(states) == 0:
		return c.ok("none in %s", dir)
	}
	return c.ok("%s", join(states))
}

// readHookServers reads a directory as the agent would. No server is called.
func readHookServers(dir string) *api.HookServers {
	out := &api.HookServers{Directory: dir}
	if dir == "" {
		return out
	}
	s := hookserver.New(hookserver.Options{Directory: dir, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	s.Look()
	defer s.Close()
	states, err := s.States()
	if err != nil {
		out.Error = err.Error()
	}
	for _, st := range states {
		h := api.HookServer{File: st.Name, Endpoint: st.Endpoint, Policy: string(st.Policy), InForce: st.InForce, Error: st.Err}
		for _, stage := range st.Stages {
			h.Stages = append(h.Stages, string(stage))
		}
		out.Servers = append(out.Servers, h)
	}
	return out
}

// checkHookService tells whether the agent can be asked by a runtime proxy.
func (n *node) checkHookService() Check {
	c := Check{Name: "hook service", Why: "with attach: hooks a runtime proxy asks the agent about every container; without its socket, or where the proxy does not know of it, pods start without what they were promised"}
	path, file := n.config.HookServers.Socket, n.config.HookServers.Register
	info, err := n.host.stat(path)
	switch {
	case missing(err):
		return c.problem("start the agent", "no socket at %s (hookServers.socket)", path)
	case err != nil:
		return c.unseen(path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return c.problem("remove it, or name another hookServers.socket", "%s is no socket", path)
	case file == "":
		return c.ok("serves at %s; hookServers.register names no file to tell proxies of it", path)
	}
	if _, err := n.host.stat(file); missing(err) {
		return c.problem("see the agent's log for why it could not be written", "%s is not there (hookServers.register)", file)
	} else if err != nil {
		return c.unseen(file, err)
	}
	return c.ok("serves at %s, and %s tells proxies of it", path, file)
}
