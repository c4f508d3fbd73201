package doctor

import (
	"log/slog"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkHookServers reports which hook servers are in force. It asks the agent if one runs, and reads the servers'
// files otherwise.
func checkHookServers(c Check, h host, dir string, found *api.HookServers) Check {
	if dir == "" {
		return c.ok("none is configured (hookServers.directory is empty)")
	}
	if found == nil {
		at, err := h.real(dir)
		if err != nil && !missing(err) {
			return c.unseen(dir, err)
		}
		found = readHookServers(at)
		found.Error = strings.ReplaceAll(found.Error, at, dir) // as the node names it
	}
	const do = "correct the file, or remove it; the agent watches the directory"
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

// readHookServers reads a directory as the agent would. It calls no server.
func readHookServers(dir string) *api.HookServers {
	out := &api.HookServers{Directory: dir}
	if dir == "" {
		return out
	}
	s := hookserver.New(hookserver.Options{Directory: dir, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	s.Reload()
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

// checkHookService reports whether a runtime proxy can ask the agent.
func checkHookService(c Check, h host, path, file string) Check {
	if bad, some := c.socket(h, path, "hookServers.socket", "start the agent"); some {
		return bad
	}
	if file == "" {
		return c.ok("serves at %s; hookServers.register does not name a file, so proxies cannot find it", path)
	}
	if _, err := h.stat(file); missing(err) {
		return c.problem("see the agent's log for the reason why the file was not written", "%s does not exist (hookServers.register)", file)
	} else if err != nil {
		return c.unseen(file, err)
	}
	return c.ok("serves at %s; proxies find it by %s", path, file)
}
