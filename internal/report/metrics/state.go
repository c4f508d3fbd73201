package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// pageState is the state from which one metrics page is made. All values of a page are from the same moment.
type pageState struct {
	api.Summary

	kernelResults []string
}

// addValue adds one value of a metric to the page. labels are the values of the metric's labels.
type addValue func(v float64, labels ...string)

// stateMetrics are the metrics whose values are read from the agent's state at each request. To add such a metric, add
// an element to this list.
var stateMetrics = []struct {
	Family

	read func(pageState, addValue) // adds the metric's values to the page
}{
	{Family{"trimtab_attached", gauge, []string{"mode"},
		"1 if the attachment is registered and the agent has read the list of the runtime's containers.", "mode: `nri`, `cri`, `bypass`"}, func(n pageState, put addValue) {
		for _, c := range n.Connections {
			put(boolValue(c.Live), c.Attachment)
		}
	}},
	{Family{"trimtab_connection_state", gauge, []string{"mode", "state"},
		"1 for the state of the attachment's connection, 0 for all other states.", "mode: `nri`, `cri`, `bypass`; state: a state that `trimtab status` prints"}, func(n pageState, put addValue) {
		for _, c := range n.Connections {
			for _, state := range c.States {
				put(boolValue(state == c.State), c.Attachment, state)
			}
		}
	}},
	{Family{"trimtab_last_sync_timestamp_seconds", gauge, nil,
		"When the agent last read the list of the runtime's containers, in seconds since the epoch; 0 for never.", ""}, singleValue(func(n pageState) float64 { return epochSeconds(n.LastSync) })},
	{Family{"trimtab_unapplied_values", gauge, []string{"reason"},
		"Decided values that are not in force now.", "reason: `not yet` (the cgroup does not exist yet, or the agent is writing the value), `no cgroup` (the container runs, but its cgroup is not in the tree at cgroup.root), `not carried` (the attachment cannot set the value), `ceded` (`nri.cede` leaves the field to another plugin), `create only` (the container was created without the value), `bad cgroup` (the agent does not know the cgroup's path), `kernel refused`, `left alone` (another program keeps writing the file), `differs` (mode observe: the node has another value), `not compared` (mode observe: no file shows the value)"}, func(n pageState, put addValue) {
		for _, why := range api.MissingReasons() {
			put(float64(n.Unapplied[why]), string(why))
		}
	}},
	{Family{"trimtab_observed_values", gauge, []string{"result"},
		"Decided values, by whether the node has the same value, with `mode: observe`; no series in mode enforce.", "result: `same`, `differs`"}, func(n pageState, put addValue) {
		if o := n.Observed; o != nil {
			put(float64(o.Compared-o.Differ), "same")
			put(float64(o.Differ), "differs")
		}
	}},
	{Family{"trimtab_observed_differences", gauge, []string{"file"},
		"Decided values that differ from the values of the node, with `mode: observe`, by setting.", "file: the setting, such as `cpuset.cpus`"}, func(n pageState, put addValue) {
		if n.Observed != nil {
			for file, count := range n.Observed.Settings {
				put(float64(count), file)
			}
		}
	}},
	{Family{"trimtab_cpus_without_class", gauge, nil,
		"CPUs that do not have the frequency or idle states of their CPU class; no series if no CPU should have a class.", ""}, optionalValue(func(n pageState) *api.CPUClassCounts { return n.CPUClasses }, func(c *api.CPUClassCounts) float64 { return float64(c.WithoutClass) })},
	{Family{"trimtab_cpu_class_repairs_total", counter, nil,
		"Values of CPUs with a class that the agent wrote again after another program had changed them.", ""}, optionalValue(func(n pageState) *api.CPUClassCounts { return n.CPUClasses }, func(c *api.CPUClassCounts) float64 { return float64(c.Repairs) })},
	{Family{"trimtab_memory_demoted_bytes_total", counter, nil,
		"Bytes that the kernel moved to slow memory for the agent (`placement.demotion`); no series if demotion is off.", ""}, optionalValue(func(n pageState) *api.Demotion { return n.Demotion }, func(d *api.Demotion) float64 { return float64(d.Moved) })},
	{Family{"trimtab_containers_without_cgroup", gauge, nil,
		"Containers that run but have no cgroup in the tree at cgroup.root: none of their values is in force.", ""}, singleValue(func(n pageState) float64 { return float64(n.WithoutCgroup) })},
	{Family{"trimtab_containers", gauge, []string{"class"},
		"Live containers.", "class: `none`, `system`, `dedicated`, `shared`, `reclaimed`"}, perKey(func(n pageState) map[string]int { return n.Classes })},
	{Family{"trimtab_pods", gauge, []string{"spec"},
		"Pods, by the source of the data that the runtime does not report: the requests and the kinds of containers. The agent treats the containers of pods without a source as app containers.", "spec: `kubelet Pods API`, `kubelet /pods`, `API server`, `nothing`"}, perKey(func(n pageState) map[lifecycle.Source]int { return n.Specs })},
	{Family{"trimtab_pool_cpus", gauge, []string{"pool", "node"},
		"CPUs of a NUMA node that are in a pool now. A CPU may be in several pools.", "pool: `reserved`, `rest`, `shared` (the default pool), `named` (all pools that pods request by name), `bound` (all pools that are bound to a NUMA node), `reclaimed`; node: NUMA node"}, func(n pageState, put addValue) {
		for _, p := range n.Pools {
			put(float64(p.CPUs), p.Pool, strconv.Itoa(p.Node))
		}
	}},
	{Family{"trimtab_pool_containers", gauge, []string{"pool"},
		"Live containers in a pool. Containers that own CPUs are in no pool.", "pool: `rest`, `shared`, `named`, `bound`, `reclaimed`, `system`"}, perKey(func(n pageState) map[string]int { return n.PoolMembers })},
	{Family{"trimtab_exclusive_cpus", gauge, nil,
		"CPUs that containers own.", ""}, singleValue(func(n pageState) float64 { return float64(n.Exclusive) })},
	{Family{"trimtab_kernel_writes_total", counter, []string{"result"},
		"Values that the agent had to write to kernel files.", "result: `applied`, `same` (the file had the value already), `clipped` (the parent cgroup allows only a part of the value), `pending` (no cgroup yet), `refused`, `left` (another program keeps writing the file)"}, func(n pageState, put addValue) {
		for _, result := range n.kernelResults {
			put(float64(n.Kernel[result]), result)
		}
	}},
	{Family{"trimtab_hookserver_up", gauge, []string{"server"},
		"1 if a hook server's file is in force and the agent calls the server; 0 if the file is refused, or if the agent does not call the server, because several calls in a row had no answer.", "server: the name of the server's file"}, perKeyBool(func(n pageState) map[string]bool { return n.HookServers })},
	{Family{"trimtab_resourceplugin_up", gauge, []string{"resource"},
		"1 if a resource plugin answers; 0 if its socket was removed, or if it did not answer the last calls.", "resource: the plugin's resource"}, perKeyBool(func(n pageState) map[string]bool { return n.ResourcePlugins })},
	{Family{"trimtab_resourceplugin_pending_removals", gauge, []string{"resource"},
		"Pods that have ended and that a resource plugin has not released yet.", "resource: the plugin's resource"}, perKey(func(n pageState) map[string]int { return n.PendingRemovals })},
	{Family{"trimtab_nrihost_plugin_connected", gauge, []string{"plugin"},
		"1 if a plugin is connected to the socket of the NRI host. Pre-installed plugins do not use the socket and have 0.", "plugin: the index and the name with which the plugin registered"}, perKeyBool(func(n pageState) map[string]bool { return n.NRIPlugins })},
	{Family{"trimtab_drift_corrected_total", counter, []string{"file"},
		"Values that the agent wrote again after another program had changed them in the kernel.", "file: the setting, such as `cpuset.cpus`"}, perKey(func(n pageState) map[string]uint64 { return n.Drift })},
	{Family{"trimtab_contested_values", gauge, []string{"file"},
		"Values that the agent leaves to another program, because that program writes them again and again (`keeper.giveUpAfter`).", "file: the setting, such as `cpu.quota`"}, perKey(func(n pageState) map[string]int { return n.Ceded })},
	{Family{"trimtab_contested_lists", gauge, []string{"file"},
		"CPU lists, memory node lists and cpuset partitions that another program keeps changing. These settings keep containers apart, so the agent still repairs them, but less often (`keeper.giveUpAfter`).", "file: the setting, such as `cpuset.cpus`"}, perKey(func(n pageState) map[string]int { return n.Contested })},
	{Family{"trimtab_cluster_reachable", gauge, nil,
		"1 if the API server accepts the agent's token and answered the last request, even with a refusal; without `cluster.enabled` there is no series.", ""}, fromCluster(func(c *api.Cluster, put addValue) {
		put(boolValue(c.Error == ""))
	})},
	{Family{"trimtab_cluster_last_contact_timestamp_seconds", gauge, nil,
		"When the API server last answered, in seconds since the epoch; 0 for never.", ""}, fromCluster(func(c *api.Cluster, put addValue) {
		put(epochSeconds(c.Reached))
	})},
	{Family{"trimtab_cluster_part_error", gauge, []string{"part"},
		"1 if a report or source that uses the API server does not work now.", "part: a part that `trimtab status` prints, such as `NodeResourceTopology`"}, fromCluster(func(c *api.Cluster, put addValue) {
		for _, p := range c.Parts {
			put(boolValue(p.Error != ""), p.Name)
		}
	})},
	{Family{"trimtab_cluster_part_left", gauge, []string{"part"},
		"1 if another program writes the object of a report, and the agent leaves the object to that program.", "part: a part that `trimtab status` prints, such as `NodeResourceTopology`"}, fromCluster(func(c *api.Cluster, put addValue) {
		for _, p := range c.Parts {
			put(boolValue(p.LeftTo != ""), p.Name)
		}
	})},
	{Family{"trimtab_cluster_writes_total", counter, []string{"part", "result"},
		"Writes to the API server.", "part: a part that `trimtab status` prints, such as `NodeResourceTopology`; result: `written`, `skipped` (nothing had changed), `failed`"}, fromCluster(func(c *api.Cluster, put addValue) {
		for _, p := range c.Parts {
			put(float64(p.Written), p.Name, "written")
			put(float64(p.Skipped), p.Name, "skipped")
			put(float64(p.Failed), p.Name, "failed")
		}
	})},
	{Family{"trimtab_cluster_events_total", counter, []string{"result"},
		"Kubernetes events, by result.", "result: `written`, `limited` (the object had too many events), `full` (dropped for newer events), `refused` (by the API server)"}, fromCluster(func(c *api.Cluster, put addValue) {
		for result, count := range c.Events {
			put(float64(count), result)
		}
	})},
	{Family{"trimtab_config_layer_version", gauge, []string{"layer"},
		"The resourceVersion of each object of the API server whose configuration is in force above the node's file.", "layer: the object, such as `ConfigMap trimtab/trimtab-cluster`"}, fromConfig(func(c *api.ClusterConfig, put addValue) {
		for _, l := range c.Layers {
			if version, err := strconv.ParseUint(l.Version, 10, 64); err == nil {
				put(float64(version), l.Name)
			}
		}
	})},
	{Family{"trimtab_config_from_copy", gauge, nil,
		"1 while the agent uses this node's copy of the API server's configuration, because the API server has not answered since the start.", ""}, fromConfig(func(c *api.ClusterConfig, put addValue) {
		put(boolValue(c.From != "" && c.From != api.FromServer))
	})},
	{Family{"trimtab_config_refused_total", counter, nil,
		"Configurations of the API server that the agent refused; the previous configuration stayed in force.", ""}, fromConfig(func(c *api.ClusterConfig, put addValue) {
		put(float64(c.RefusedTotal))
	})},
	{Family{"trimtab_config_generation", gauge, nil,
		"Number of configurations that were in force since the start.", ""}, singleValue(func(n pageState) float64 { return float64(n.ConfigGen) })},
	{Family{"trimtab_config_error", gauge, nil,
		"1 if the agent refused a newer configuration and the previous configuration is in force.", ""}, singleValue(func(n pageState) float64 { return boolValue(n.ConfigError) })},
}

// perKey returns a function that reads a map, and adds the value of each key. The key is the value of the metric's
// label.
func perKey[K ~string, V int | uint64](read func(pageState) map[K]V) func(pageState, addValue) {
	return func(n pageState, put addValue) {
		for key, v := range read(n) {
			put(float64(v), string(key))
		}
	}
}

// perKeyBool returns a function that reads a map, and adds 1 for each key with the value true, and 0 for each other
// key. The key is the value of the metric's label.
func perKeyBool(read func(pageState) map[string]bool) func(pageState, addValue) {
	return func(n pageState, put addValue) {
		for key, works := range read(n) {
			put(boolValue(works), key)
		}
	}
}

// singleValue returns a function that adds one value without labels.
func singleValue(read func(pageState) float64) func(pageState, addValue) {
	return func(n pageState, put addValue) { put(read(n)) }
}

// optionalValue returns a function that adds one value without labels. find returns the part of the state that has the
// value, and read returns the value. If find returns nil, no value is added.
func optionalValue[P any](find func(pageState) *P, read func(*P) float64) func(pageState, addValue) {
	return func(n pageState, put addValue) {
		if p := find(n); p != nil {
			put(read(p))
		}
	}
}

// fromCluster returns a function that calls addValues to add values about the API server. It adds nothing if the agent
// does not use the API server.
func fromCluster(addValues func(*api.Cluster, addValue)) func(pageState, addValue) {
	return func(n pageState, put addValue) {
		if n.Cluster != nil {
			addValues(n.Cluster, put)
		}
	}
}

// fromConfig returns a function that calls addValues to add values about the configuration in the API server. It adds
// nothing if the agent does not read this configuration.
func fromConfig(addValues func(*api.ClusterConfig, addValue)) func(pageState, addValue) {
	return fromCluster(func(c *api.Cluster, put addValue) {
		if c.Config != nil {
			addValues(c.Config, put)
		}
	})
}

// boolValue returns 1 for true and 0 for false.
func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// epochSeconds returns a time as seconds since the epoch, or 0 for the zero time.
func epochSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// stateCollector collects the metrics that are read from the state. It implements prometheus.Collector.
type stateCollector struct {
	summary       func() api.Summary
	kernelResults []string
}

// Describe sends the descriptions of the metrics in stateMetrics. It implements prometheus.Collector.
func (s *stateCollector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range stateMetrics {
		out <- f.desc()
	}
}

// Collect reads the state and sends the values of the metrics in stateMetrics. It implements prometheus.Collector.
func (s *stateCollector) Collect(out chan<- prometheus.Metric) {
	n := pageState{s.summary(), s.kernelResults}
	for _, f := range stateMetrics {
		desc, kind := f.desc(), prometheus.GaugeValue
		if f.Kind == counter {
			kind = prometheus.CounterValue
		}
		f.read(n, func(v float64, labels ...string) { out <- prometheus.MustNewConstMetric(desc, kind, v, labels...) })
	}
}

// desc returns the Prometheus client's description of the metric.
func (f Family) desc() *prometheus.Desc { return prometheus.NewDesc(f.Name, f.Help, f.LabelNames, nil) }
