package agent

import (
	"log/slog"
	"os"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// isObserveMode reports whether a configuration is for an agent that changes nothing.
func isObserveMode(c config.Config) bool { return c.Mode == "observe" }

// observeOnly disables everything in a configuration with which the agent would change something: refusals of pods,
// hook servers, plugins, the OCI wrapper, the PodResources server, and writes to the API server. It returns the
// disabled keys for a warning. The warning does not name strict, failurePolicy, cluster.nodeCondition and keys of
// paths.
//
// observeOnly also disables the state files, which would contain decisions that were never applied. Otherwise a later
// agent with mode: enforce would read these files, and take the decisions for values in force.
func observeOnly(c config.Config) (config.Config, []string) {
	def := config.Default()
	var off []string
	switchOff := func(key string, isOn bool, disable func()) {
		if isOn {
			off = append(off, key)
			disable()
		}
	}
	c.Strict, c.FailurePolicy, c.Paths.State = false, def.FailurePolicy, ""
	if _, err := os.Stat(c.Paths.Key); err != nil {
		c.Paths.Key = "" // the key stays in memory, and no file is made
	}
	switchOff("hookServers.directory", c.HookServers.Directory != "" && c.HookServers.Directory != def.HookServers.Directory, func() {})
	c.HookServers.Directory = ""
	switchOff("resourcePlugins", c.ResourcePlugins.Directory != "" || len(c.ResourcePlugins.Watch) > 0, func() {
		c.ResourcePlugins.Directory, c.ResourcePlugins.Watch = "", nil
	})
	switchOff("nriHost.enabled", c.NRIHost.Enabled, func() { c.NRIHost.Enabled = false })
	switchOff("cri.ociWrapper.enabled", c.CRI.OCIWrapper.Enabled, func() { c.CRI.OCIWrapper.Enabled = false })
	switchOff("podResources.socket", c.PodResources.Socket != "", func() { c.PodResources.Socket = "" })
	k := &c.Cluster
	switchOff("cluster.topology", k.Enabled && (k.Topology.Enabled || k.Topology.Katalyst), func() { k.Topology.Enabled, k.Topology.Katalyst = false, false })
	switchOff("cluster.koordinator", k.Enabled && (k.Koordinator.NodeMetric || k.Koordinator.Device), func() { k.Koordinator.NodeMetric, k.Koordinator.Device = false, false })
	switchOff("cluster.podAnnotation", k.Enabled && k.PodAnnotation, func() { k.PodAnnotation = false })
	k.NodeCondition = false
	return c, off
}

// applyObserveMode changes the options of an agent with mode: observe, so that the agent changes nothing on the node.
func applyObserveMode(o *Options) {
	if !isObserveMode(o.Config) {
		return
	}
	var off []string
	o.Config, off = observeOnly(o.Config)
	o.Log.Info("mode: observe: the agent decides, but changes no container, no kernel file and no state file", logkey.Key, "mode")
	logIgnoredKeys(o.Log, off)
}

// logIgnoredKeys logs which keys have no effect with mode: observe.
func logIgnoredKeys(log *slog.Logger, off []string) {
	if len(off) > 0 {
		log.Warn("these keys have no effect with mode: observe", logkey.Key, strings.Join(off, ", "))
	}
}
