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

// askedServers makes the client of hook servers; nil if the configuration names none. It reads their files at once, so
// that they are known when the first pod is created.
func (a *Agent) askedServers() facts.HookServers {
	c := a.opt.Config.HookServers
	if c.Directory == "" {
		return nil
	}
	a.servers = hookserver.New(hookserver.Options{
		Directory: c.Directory, Timeout: c.Timeout.Duration(), Log: a.log, Recorder: callRecorder{a.metrics}, OwnSocket: c.Socket,
	})
	a.servers.Reload()
	return a.servers
}

// hookService returns the options of the agent's own hook server; nil if the agent is no hook server.
func hookService(c config.Config) *cri.HookService {
	if c.Attach != "hooks" {
		return nil
	}
	return &cri.HookService{Socket: c.HookServers.Socket, RegistrationFile: c.HookServers.Register, OmittedStages: c.HookServers.DisabledStages}
}

// callRecorder counts calls to hook servers in the metrics.
type callRecorder struct{ m *metrics.Metrics }

// Call counts one call.
func (r callRecorder) Call(server string, _ hookserver.Stage, result hookserver.Result, took time.Duration) {
	r.m.HookServerCall(server, string(result), took)
}

// hookServers returns the state of the hook servers; nil if the configuration names none.
func (a *Agent) hookServers() *api.HookServers {
	if a.servers == nil {
		return nil
	}
	out := &api.HookServers{Directory: a.opt.Config.HookServers.Directory}
	var err error
	if out.Servers, err = a.servers.States(); err != nil {
		out.Error = err.Error()
	}
	return out
}
