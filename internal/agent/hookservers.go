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

// askedServers makes the client of hook servers; nil if the configuration names no hook servers. It reads
// their files once, so that the first pod is sent to them.
func (a *Agent) askedServers() facts.HookServers {
	c := a.opt.Config.HookServers
	if c.Directory == "" {
		return nil
	}
	a.servers = hookserver.New(hookserver.Options{
		Directory: c.Directory, Timeout: c.TimeoutDuration(), Log: a.log, Recorder: callRecorder{a.metrics}, Own: c.Socket,
	})
	a.servers.Reload()
	return a.servers
}

// hookService returns the service with which the agent is itself a hook server; nil if it is not one.
func hookService(c config.Config) *cri.HookService {
	if c.Attach != "hooks" {
		return nil
	}
	return &cri.HookService{Socket: c.HookServers.Socket, Register: c.HookServers.Register, Without: c.HookServers.DisabledStages}
}

// callRecorder counts calls of hook servers in the metrics.
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
	states, err := a.servers.States()
	out := &api.HookServers{Directory: a.opt.Config.HookServers.Directory}
	if err != nil {
		out.Error = err.Error()
	}
	for _, s := range states {
		h := api.HookServer{
			File: s.Name, Endpoint: s.Endpoint, Policy: string(s.Policy), InForce: s.InForce, Resting: s.CircuitOpen,
			Calls: s.Calls, Failed: s.Failed, Error: s.Err,
		}
		for _, stage := range s.Stages {
			h.Stages = append(h.Stages, string(stage))
		}
		out.Servers = append(out.Servers, h)
	}
	return out
}
