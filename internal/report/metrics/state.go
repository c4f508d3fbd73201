package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// now is the state from which one page is made. All values of the page are therefore from the same moment.
type now struct {
	api.Summary

	kernel []string
}

// put adds one value to the page, with the values of its metric's labels.
type put func(v float64, labels ...string)

// ofState are the metrics that are read from the state. A new metric is one row.
var ofState = []struct {
	family

	read func(now, put)
}{
	{family{"trimtab_attached", gauge, []string{"mode"},
		"1 if the attachment is registered and the agent has read what the runtime runs.", "mode: `nri`, `cri`, `bypass`"}, func(n now, put put) {
		for _, c := range n.Connections {
			put(yes(c.Live), c.Mode)
		}
	}},
	{family{"trimtab_connection_state", gauge, []string{"mode", "state"},
		"1 for the state the attachment's connection is in, 0 for all others.", "mode: as above; state: those `trimtab status` prints"}, func(n now, put put) {
		for _, c := range n.Connections {
			for _, state := range c.States {
				put(yes(state == c.State), c.Mode, state)
			}
		}
	}},
	{family{"trimtab_last_sync_timestamp_seconds", gauge, nil,
		"When the agent last read all that the runtime runs, in seconds since the epoch; 0 for never.", ""}, one(func(n now) float64 { return seconds(n.LastSync) })},
	{family{"trimtab_unapplied_values", gauge, []string{"reason"},
		"Decided values that are not in force now.", "reason: `not yet`, `no cgroup` (the container runs and its cgroup is not in the tree), `not carried`, `ceded`, `create only`, `bad cgroup`, `kernel refused`, `left alone` (another program keeps writing it), `differs` (mode observe: the node has another value), `not compared` (mode observe: no file shows the value)"}, func(n now, put put) {
		for _, why := range api.Reasons() {
			put(float64(n.Unapplied[why]), string(why))
		}
	}},
	{family{"trimtab_observed_values", gauge, []string{"result"},
		"Decided values, by what the node has in their place, with `mode: observe`; no series in mode enforce.", "result: `same`, `differs`"}, func(n now, put put) {
		if o := n.Observed; o != nil {
			put(float64(o.Compared-o.Differ), "same")
			put(float64(o.Differ), "differs")
		}
	}},
	{family{"trimtab_observed_differences", gauge, []string{"file"},
		"Decided values that the node has otherwise, with `mode: observe`, by setting.", "file: the setting, such as `cpuset.cpus`"}, func(n now, put put) {
		if n.Observed != nil {
			for file, count := range n.Observed.Settings {
				put(float64(count), file)
			}
		}
	}},
	{family{"trimtab_containers_without_cgroup", gauge, nil,
		"Containers that run but have no cgroup in the tree at cgroup.root: none of their values is in force.", ""}, one(func(n now) float64 { return float64(n.WithoutCgroup) })},
	{family{"trimtab_containers", gauge, []string{"class"},
		"Live containers.", "class: `none`, `system`, `dedicated`, `shared`, `reclaimed`"}, each(func(n now) map[string]int { return n.Classes })},
	{family{"trimtab_pods", gauge, []string{"spec"},
		"Pods, by the source of what the runtime does not report: requests, kinds of containers. Containers of pods without a source count as app containers.", "spec: `kubelet Pods API`, `kubelet /pods`, `API server`, `nothing`"}, each(func(n now) map[lifecycle.Source]int { return n.Specs })},
	{family{"trimtab_pool_cpus", gauge, []string{"pool", "node"},
		"CPUs of a NUMA node that are in a pool now. A CPU may be in several pools.", "pool: `reserved`, `rest`, `shared` (the default one), `named` (all that pods name), `bound` (all that are bound to a NUMA node), `reclaimed`; node: NUMA node"}, func(n now, put put) {
		for _, p := range n.Pools {
			put(float64(p.CPUs), p.Pool, strconv.Itoa(p.Node))
		}
	}},
	{family{"trimtab_pool_containers", gauge, []string{"pool"},
		"Live containers in a pool. Those that own CPUs are in none.", "pool: `rest`, `shared`, `named`, `bound`, `reclaimed`, `system`"}, each(func(n now) map[string]int { return n.PoolMembers })},
	{family{"trimtab_exclusive_cpus", gauge, nil,
		"CPUs that containers own.", ""}, one(func(n now) float64 { return float64(n.Exclusive) })},
	{family{"trimtab_kernel_writes_total", counter, []string{"result"},
		"Values that the agent had to write to kernel files.", "result: `applied`, `same` (nothing was written), `clipped` (the parent cgroup allows only a part), `pending` (no cgroup yet), `refused`, `left` (another program keeps writing it)"}, func(n now, put put) {
		for _, result := range n.kernel {
			put(float64(n.Kernel[result]), result)
		}
	}},
	{family{"trimtab_hookserver_up", gauge, []string{"server"},
		"1 if a hook server's file is in force and the agent calls the server; 0 if the file is refused, or if the agent does not call the server after several failures in a row.", "server: the name of its file"}, func(n now, put put) {
		for server, up := range n.HookServers {
			put(yes(up), server)
		}
	}},
	{family{"trimtab_resourceplugin_up", gauge, []string{"resource"},
		"1 if a resource plugin answers; 0 if its socket is gone, or if it did not answer the last calls.", "resource: that of the plugin"}, func(n now, put put) {
		for resource, up := range n.ResourcePlugins {
			put(yes(up), resource)
		}
	}},
	{family{"trimtab_resourceplugin_pending_removals", gauge, []string{"resource"},
		"Pods that have ended and that a resource plugin has not released yet.", "resource: that of the plugin"}, each(func(n now) map[string]int { return n.PendingRemovals })},
	{family{"trimtab_nrihost_plugin_connected", gauge, []string{"plugin"},
		"1 if a plugin of the NRI host is connected to its socket. Pre-installed plugins do not use the socket and have 0.", "plugin: index and name, as the plugin registered"}, func(n now, put put) {
		for plugin, connected := range n.NRIPlugins {
			put(yes(connected), plugin)
		}
	}},
	{family{"trimtab_drift_corrected_total", counter, []string{"file"},
		"Values that the agent wrote again after another program had changed them in the kernel.", "file: the setting, such as `cpuset.cpus`"}, each(func(n now) map[string]uint64 { return n.Drift })},
	{family{"trimtab_contested_values", gauge, []string{"file"},
		"Values left to another program that writes them again and again (`keeper.giveUpAfter`).", "file: the setting, such as `cpu.quota`"}, each(func(n now) map[string]int { return n.Ceded })},
	{family{"trimtab_contested_lists", gauge, []string{"file"},
		"CPU and memory node lists and partitions that another program keeps changing. They keep containers apart, so the agent still repairs them, but less often (`keeper.giveUpAfter`).", "file: the setting, such as `cpuset.cpus`"}, each(func(n now) map[string]int { return n.Contested })},
	{family{"trimtab_cluster_reachable", gauge, nil,
		"1 if the API server accepts the agent's token and answered the last request, even with a refusal; without `cluster.enabled` there is no series.", ""}, ofCluster(func(c *api.Cluster, put put) {
		put(yes(c.Error == ""))
	})},
	{family{"trimtab_cluster_last_contact_timestamp_seconds", gauge, nil,
		"When the API server last answered, in seconds since the epoch; 0 for never.", ""}, ofCluster(func(c *api.Cluster, put put) {
		put(seconds(c.Reached))
	})},
	{family{"trimtab_cluster_part_error", gauge, []string{"part"},
		"1 if a report or source that uses the API server does not work now.", "part: those `trimtab status` prints, such as `NodeResourceTopology`"}, ofCluster(func(c *api.Cluster, put put) {
		for _, p := range c.Parts {
			put(yes(p.Error != ""), p.Name)
		}
	})},
	{family{"trimtab_cluster_part_left", gauge, []string{"part"},
		"1 if another program writes the object of a report, and the agent leaves it to that program.", "part: as above"}, ofCluster(func(c *api.Cluster, put put) {
		for _, p := range c.Parts {
			put(yes(p.LeftTo != ""), p.Name)
		}
	})},
	{family{"trimtab_cluster_writes_total", counter, []string{"part", "result"},
		"Writes to the API server.", "part: as above; result: `written`, `skipped` (nothing had changed), `failed`"}, ofCluster(func(c *api.Cluster, put put) {
		for _, p := range c.Parts {
			put(float64(p.Written), p.Name, "written")
			put(float64(p.Skipped), p.Name, "skipped")
			put(float64(p.Failed), p.Name, "failed")
		}
	})},
	{family{"trimtab_cluster_events_total", counter, []string{"result"},
		"Kubernetes events, by result.", "result: `written`, `limited` (their object had too many), `full` (newer ones took their place), `refused` (by the API server)"}, ofCluster(func(c *api.Cluster, put put) {
		for result, count := range c.Events {
			put(float64(count), result)
		}
	})},
	{family{"trimtab_config_layer_version", gauge, []string{"layer"},
		"The resourceVersion of each object of the API server whose configuration is in force above the node's file.", "layer: the object, such as `ConfigMap trimtab/trimtab-cluster`"}, ofConfig(func(c *api.ClusterConfig, put put) {
		for _, l := range c.Layers {
			if version, err := strconv.ParseUint(l.Version, 10, 64); err == nil {
				put(float64(version), l.Name)
			}
		}
	})},
	{family{"trimtab_config_from_copy", gauge, nil,
		"1 while the agent uses this node's copy of the API server's configuration, because that server has not answered since the start.", ""}, ofConfig(func(c *api.ClusterConfig, put put) {
		put(yes(c.From != "" && c.From != api.FromServer))
	})},
	{family{"trimtab_config_refused_total", counter, nil,
		"Configurations of the API server that the agent refused; the one before stayed in force.", ""}, ofConfig(func(c *api.ClusterConfig, put put) {
		put(float64(c.RefusedTotal))
	})},
	{family{"trimtab_config_generation", gauge, nil,
		"Number of configurations that were in force since the start.", ""}, one(func(n now) float64 { return float64(n.ConfigGen) })},
	{family{"trimtab_config_error", gauge, nil,
		"1 if the agent refused a newer configuration and the one before is in force.", ""}, one(func(n now) float64 { return yes(n.ConfigError) })},
}

// each reads a value for each key of a map, which is the metric's label.
func each[K ~string, V int | uint64](of func(now) map[K]V) func(now, put) {
	return func(n now, put put) {
		for key, v := range of(n) {
			put(float64(v), string(key))
		}
	}
}

// one reads a value without labels.
func one(of func(now) float64) func(now, put) {
	return func(n now, put put) { put(of(n)) }
}

// ofCluster reads the state of the API server's services, if there are any.
func ofCluster(of func(*api.Cluster, put)) func(now, put) {
	return func(n now, put put) {
		if n.Cluster != nil {
			of(n.Cluster, put)
		}
	}
}

// ofConfig reads the part of the configuration that comes from the API server, if the agent reads any.
func ofConfig(of func(*api.ClusterConfig, put)) func(now, put) {
	return ofCluster(func(c *api.Cluster, put put) {
		if c.Config != nil {
			of(c.Config, put)
		}
	})
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a moment since the epoch, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// state collects the metrics that are read from the state.
type state struct {
	summary func() api.Summary
	kernel  []string
}

// Describe implements prometheus.Collector.
func (s *state) Describe(out chan<- *prometheus.Desc) {
	for _, f := range ofState {
		out <- f.desc()
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(out chan<- prometheus.Metric) {
	n := now{s.summary(), s.kernel}
	for _, f := range ofState {
		desc, kind := f.desc(), prometheus.GaugeValue
		if f.kind == counter {
			kind = prometheus.CounterValue
		}
		f.read(n, func(v float64, labels ...string) { out <- prometheus.MustNewConstMetric(desc, kind, v, labels...) })
	}
}

func (f family) desc() *prometheus.Desc { return prometheus.NewDesc(f.name, f.help, f.labels, nil) }
