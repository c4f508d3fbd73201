package agent

import (
	"path/filepath"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/extend/nrihost"
)

// nriHost makes the host of NRI plugins; nil if none are served.
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
		Registration: n.Registration(), Request: n.Request(), DisableConnections: n.DisableConnections,
		Validator: &nrihost.Validator{
			Enable: v.Enable, RejectOCIHookAdjustment: v.RejectOCIHookAdjustment,
			RejectRuntimeDefaultSeccompAdjustment: v.RejectRuntimeDefaultSeccompAdjustment,
			RejectUnconfinedSeccompAdjustment:     v.RejectUnconfinedSeccompAdjustment,
			RejectCustomSeccompAdjustment:         v.RejectCustomSeccompAdjustment,
			RejectNamespaceAdjustment:             v.RejectNamespaceAdjustment, RejectSysctlAdjustment: v.RejectSysctlAdjustment,
			RequiredPlugins: v.RequiredPlugins, TolerateMissingAnnotation: v.TolerateMissingPluginsAnnotation,
		},
		Report: n.Unsupported == "report", Fail: c.FailurePolicy.Agent == "fail",
		State: journal, Runtime: socketOf(c.CRI.Endpoint), Dial: a.opt.Dial, Log: a.log,
	})
}

// hostOrNil is a host as the CRI proxy takes it: nil for none.
func hostOrNil(h *nrihost.Host) cri.Host {
	if h == nil {
		return nil
	}
	return h
}
