package agent

import (
	"log/slog"
	"os"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// observes reports whether a configuration is for an agent that changes nothing.
func observes(c config.Config) bool { return c.Mode == "observe" }

// onlyObserving returns a configuration for an agent that changes nothing, and the keys that have no effect then: all that
// refuse a request, that ask or serve other programs which act on the answer, and that write
// objects of the API server. An agent in this mode keeps no state, so that a later agent with mode:
// enforce does not take decisions for what is in force.
func onlyObserving(c config.Config) (config.Config, []string) {
	def := config.Default()
	var off []string
	switchOff := func(key string, is bool, set func()) {
		if is {
			off = append(off, key)
			set()
		}
	}
	c.Strict, c.FailurePolicy, c.Paths.State = false, def.FailurePolicy, ""
	if _, err := os.Stat(c.Paths.Key); err != nil {
		c.Paths.Key = "" // a key of this process alone; the file is not made
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

// startMode changes the options of an agent that only observes.
func startMode(o *Options) {
	if !observes(o.Config) {
		return
	}
	var off []string
	o.Config, off = onlyObserving(o.Config)
	o.Log.Info("mode: observe: the agent decides, and changes no container, no kernel file and no state file", logkey.Key, "mode")
	logOff(o.Log, off)
}

// logOff names keys without effect in mode observe.
func logOff(log *slog.Logger, off []string) {
	if len(off) > 0 {
		log.Warn("these keys have no effect with mode: observe", logkey.Key, strings.Join(off, ", "))
	}
}
