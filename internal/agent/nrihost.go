package agent

import (
	"path/filepath"
	"time"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/extend/nrihost"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/metrics"
)

// nriHost makes the host of NRI plugins; nil if the configuration does not enable it.
func (a *Agent) nriHost() *nrihost.Host {
	c := a.opt.Config
	n := c.NRIHost
	if !n.Enabled || c.Attach != "cri" {
		return nil
	}
	journal := ""
	if c.Paths.State != "" {
		journal = filepath.Join(c.Paths.State, "nrihost")
	}
	v := n.DefaultValidator
	return nrihost.New(nrihost.Options{
		Socket: n.Socket, PluginPath: n.PluginPath, PluginConfigPath: n.PluginConfigPath,
		Registration: n.RegistrationTimeout.Duration(), Request: n.RequestTimeout.Duration(), DisableConnections: n.DisableConnections,
		Validator: &nrihost.Validator{
			Enable: v.Enable, RejectOCIHookAdjustment: v.RejectOCIHookAdjustment,
			RejectRuntimeDefaultSeccompAdjustment: v.RejectRuntimeDefaultSeccompAdjustment,
			RejectUnconfinedSeccompAdjustment:     v.RejectUnconfinedSeccompAdjustment,
			RejectCustomSeccompAdjustment:         v.RejectCustomSeccompAdjustment,
			RejectNamespaceAdjustment:             v.RejectNamespaceAdjustment, RejectSysctlAdjustment: v.RejectSysctlAdjustment,
			RequiredPlugins: v.RequiredPlugins, TolerateMissingAnnotation: v.TolerateMissingPluginsAnnotation,
		},
		ReportUnsupported: n.Unsupported == "report", FailClosed: c.FailurePolicy.Agent == "fail",
		State: journal, Runtime: socketOf(c.CRI.Endpoint), Dial: a.opt.Dial, Log: a.log,
		Recorder: pluginRecorder{a.metrics},
	})
}

// hostOrNil converts a host to cri.NRIHost. A nil host becomes a nil interface.
func hostOrNil(h *nrihost.Host) cri.NRIHost {
	if h == nil {
		return nil
	}
	return h
}

// pluginRecorder counts requests to plugins in the metrics.
type pluginRecorder struct{ m *metrics.Metrics }

// Called counts one request.
func (r pluginRecorder) Called(plugin, event string, failed bool, took time.Duration) {
	result := "done"
	if failed {
		result = "failed"
	}
	r.m.PluginCall(plugin, event, result, took)
}

// nriHostStatus reports the host of NRI plugins; nil if there is none.
func (a *Agent) nriHostStatus() *api.NRIHost {
	if a.host == nil {
		return nil
	}
	s := a.host.State()
	out := &api.NRIHost{Socket: s.Socket, Flow: s.Flow, Error: s.Err, Rejected: s.Rejected}
	for _, p := range s.Plugins {
		one := api.NRIPlugin{Name: p.Name, Connected: p.Connected, Calls: p.Calls, Failed: p.Failed, Longest: p.LongestTime, Error: p.Err, Sets: p.Sets}
		if p.Calls > 0 {
			one.Average = p.TotalTime / time.Duration(p.Calls) //nolint:gosec // a count
		}
		out.Plugins = append(out.Plugins, one)
	}
	return out
}
