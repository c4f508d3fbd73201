package doctor

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkHookServers reports which hook servers are in force. The parameter found is the state of the hook servers in the
// report of a running agent. If found is nil, checkHookServers reads the files of the hook servers in dir.
func checkHookServers(c Check, h host, dir string, found *api.HookServers) Check {
	if dir == "" {
		return c.ok("no hook server is configured (hookServers.directory is empty)")
	}
	if found == nil {
		at, err := h.realPath(dir)
		if err != nil && !isMissing(err) {
			return c.unreadable(dir, err)
		}
		found = readHookServers(at)
		found.Error = strings.ReplaceAll(found.Error, at, dir) // the path on the node
	}
	const do = "correct the file, or remove it; the agent watches the directory"
	if found.Error != "" {
		return c.problem(do, "%s", found.Error)
	}
	states := joinTexts(found.Servers, func(s api.HookServer) string { return s.File + ": " + s.State() })
	switch {
	case slices.ContainsFunc(found.Servers, func(s api.HookServer) bool { return s.Error != "" || s.Suspended }):
		return c.problem(do, "%s", states)
	case states == "":
		return c.ok("no hook server in %s", dir)
	}
	return c.ok("%s", states)
}

// readHookServers reads a directory as the agent would. It calls no server.
func readHookServers(dir string) *api.HookServers {
	s := hookserver.New(hookserver.Options{Directory: dir, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	s.Reload()
	defer s.Close()
	out := &api.HookServers{Directory: dir}
	var err error
	if out.Servers, err = s.States(); err != nil {
		out.Error = err.Error()
	}
	return out
}

// checkHookService reports whether a runtime proxy can find and call the agent. The parameter path is the agent's
// socket. The parameter file is the path of the file from which runtime proxies learn the path of the socket.
func checkHookService(c Check, h host, path, file string) Check {
	if bad, some := c.socketProblem(h, path, "hookServers.socket", "start the agent"); some {
		return bad
	}
	if file == "" {
		return c.ok("the agent serves hooks at %s; hookServers.register does not name a file, so proxies cannot find the agent", path)
	}
	if _, err := h.stat(file); isMissing(err) {
		return c.problem("see the agent's log for the reason why the file was not written", "%s does not exist (hookServers.register)", file)
	} else if err != nil {
		return c.unreadable(file, err)
	}
	return c.ok("the agent serves hooks at %s; proxies find the agent by the file %s", path, file)
}
