package agent

import (
	"time"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/metrics"
)

// newHookServers makes the client of hook servers; nil if hookServers.directory is empty. It reads the registration
// files at once, so that the hook servers are known when the first pod is created.
func (a *Agent) newHookServers() facts.HookServers {
	c := a.opt.Config.HookServers
	if c.Directory == "" {
		return nil
	}
	a.hookServers = hookserver.New(hookserver.Options{
		Directory: c.Directory, Timeout: c.Timeout.Duration(), Log: a.log, Recorder: hookServerRecorder{a.metrics}, OwnSocket: c.Socket,
	})
	a.hookServers.Reload()
	return a.hookServers
}

// hookService returns the options of the agent's own hook server; nil if the agent is no hook server.
func hookService(c config.Config) *cri.HookService {
	if c.Attach != "hooks" {
		return nil
	}
	return &cri.HookService{Socket: c.HookServers.Socket, RegistrationFile: c.HookServers.Register, OmittedStages: c.HookServers.DisabledStages}
}

// hookServerRecorder counts calls to hook servers in the metrics.
type hookServerRecorder struct{ m *metrics.Metrics }

// CountCall counts one call.
func (r hookServerRecorder) CountCall(server string, _ hookserver.Stage, result hookserver.Result, took time.Duration) {
	r.m.HookServerCall(server, string(result), took)
}

// hookServerStatus returns the state of the hook servers; nil if hookServers.directory is empty.
func (a *Agent) hookServerStatus() *api.HookServers {
	if a.hookServers == nil {
		return nil
	}
	out := &api.HookServers{Directory: a.opt.Config.HookServers.Directory}
	var err error
	if out.Servers, err = a.hookServers.States(); err != nil {
		out.Error = err.Error()
	}
	return out
}
