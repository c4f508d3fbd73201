// Package monitoring makes the Grafana dashboard of deploy/monitoring: a table of panels, and the JSON that Grafana
// imports.
package monitoring

import (
	"bytes"
	"encoding/json"
)

// Panel is one panel of the dashboard.
type Panel struct {
	Title string
	About string // the panel's description in Grafana
	Kind  string // Grafana's type of panel: stat or timeseries
	Unit  string // Grafana's unit, such as short, s or percentunit
	Width int    // in columns of Grafana's grid, which has 24
	Stack bool   // a timeseries panel draws its series on top of each other
	// RedFrom is the lowest value for which a panel of the type stat is red; 0 if the panel is never red.
	RedFrom float64
	Queries []Query
}

// Query is a PromQL expression with the legend of its series.
type Query struct{ Expr, Legend string }

// onSelectedNodes limits a metric to the nodes that the user of the dashboard selected.
const onSelectedNodes = `instance=~"$instance"`

// Panels returns the panels of the dashboard, by row.
func Panels() []struct {
	Row    string // the row's title
	Panels []Panel
} {
	return []struct {
		Row    string
		Panels []Panel
	}{
		{"Health", healthPanels()}, {"CPUs and their owners", cpuPanels()}, {"Work of the agents", workPanels()}, {"Other programs and the cluster", otherPanels()},
	}
}

// statPanel returns a panel that shows one number: the result of the PromQL expression expr. The number is red if it is
// the parameter bad or higher. If bad is 0, the number is never red.
func statPanel(title, about, expr string, bad float64) Panel {
	return Panel{Title: title, About: about, Kind: "stat", Unit: "short", Width: 4, RedFrom: bad, Queries: []Query{{expr, ""}}}
}

// timeSeriesPanel returns a panel that shows the results of queries over time.
func timeSeriesPanel(title, about, unit string, queries ...Query) Panel {
	return Panel{Title: title, About: about, Kind: "timeseries", Unit: unit, Width: 12, Queries: queries}
}

// healthPanels returns the panels that show whether agents work, and whether decided values are in force.
func healthPanels() []Panel {
	return []Panel{
		statPanel("Agents", "Nodes whose agent answers.", `count(trimtab_build_info{`+onSelectedNodes+`})`, 0),
		statPanel("Not attached", "Nodes whose agent is not attached to the container runtime. The agent sets nothing for new containers there.", `count(max by (instance) (trimtab_attached{`+onSelectedNodes+`}) == 0) or vector(0)`, 1),
		statPanel("Values not in force", "Values that agents decided and that containers do not have.", `sum(trimtab_unapplied_values{`+onSelectedNodes+`, reason!="not yet"})`, 1),
		statPanel("Containers without a cgroup", "Running containers for which the agent finds no cgroup.", `sum(trimtab_containers_without_cgroup{`+onSelectedNodes+`})`, 1),
		statPanel("Configurations refused", "Nodes whose agent refused the newest configuration.", `sum(trimtab_config_error{`+onSelectedNodes+`})`, 1),
		statPanel("CPU and memory lists changed", "Lists of CPUs or memory nodes that another program changes again and again.", `sum(trimtab_contested_lists{`+onSelectedNodes+`})`, 1),
		timeSeriesPanel("Values not in force, by reason", "The values of a container that has not started have the reason \"not yet\". Check the values with all other reasons.", "short",
			Query{`sum by (reason) (trimtab_unapplied_values{` + onSelectedNodes + `})`, "{{reason}}"}),
		timeSeriesPanel("Values compared with the node", "Only with mode: observe. Decided values that are the same on the node or differ, and the differences by setting.", "short",
			Query{`sum by (result) (trimtab_observed_values{` + onSelectedNodes + `})`, "{{result}}"}, Query{`sum by (file) (trimtab_observed_differences{` + onSelectedNodes + `})`, "{{file}}"}),
		timeSeriesPanel("Requests not granted", "Requests of pods that the agent did not grant, per second.", "ops", Query{`sum by (kind) (rate(trimtab_refused_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{kind}}"}),
	}
}

// cpuPanels returns the panels about containers, pools and owned CPUs.
func cpuPanels() []Panel {
	containers := timeSeriesPanel("Containers", "Live containers, by class: none, system, dedicated, shared or reclaimed.", "short", Query{`sum by (class) (trimtab_containers{` + onSelectedNodes + `})`, "{{class}}"})
	pools := timeSeriesPanel("CPUs of pools", "CPUs in each pool. A CPU may be in several pools.", "short", Query{`sum by (pool) (trimtab_pool_cpus{` + onSelectedNodes + `})`, "{{pool}}"})
	members := timeSeriesPanel("Containers in pools", "Live containers in each pool. Containers that own CPUs are in no pool.", "short", Query{`sum by (pool) (trimtab_pool_containers{` + onSelectedNodes + `})`, "{{pool}}"})
	containers.Stack, members.Stack = true, true
	return []Panel{
		containers, pools, members,
		timeSeriesPanel("CPUs that pods own", "Exclusive CPUs of pods, by node.", "short", Query{`trimtab_exclusive_cpus{` + onSelectedNodes + `}`, "{{instance}}"}),
	}
}

// workPanels returns the panels about the work of the agents: events, decisions, and their CPU and memory use.
func workPanels() []Panel {
	const took = `sum by (le, kind) (rate(trimtab_event_duration_seconds_bucket{` + onSelectedNodes + `, kind=~"CreateContainer|UpdateContainer|RunPodSandbox"}[$__rate_interval]))`
	return []Panel{
		timeSeriesPanel("Events", "Events from runtimes and kubelets, per second.", "ops", Query{`sum by (kind) (rate(trimtab_events_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{kind}}"}),
		timeSeriesPanel("Time for an answer", "The time from an event to the agent's answer: 99 of 100 events take no longer.", "s", Query{`histogram_quantile(0.99, ` + took + `)`, "{{kind}}"}),
		timeSeriesPanel("Time for a decision", "The time in which the agent decides an event. It is a part of the time for an answer.", "s",
			Query{`histogram_quantile(0.5, sum by (le) (rate(trimtab_decision_duration_seconds_bucket{` + onSelectedNodes + `}[$__rate_interval])))`, "median"},
			Query{`histogram_quantile(0.99, sum by (le) (rate(trimtab_decision_duration_seconds_bucket{` + onSelectedNodes + `}[$__rate_interval])))`, "99 of 100"}),
		timeSeriesPanel("Kernel values", "Values that agents had to write to kernel files, per second, by result.", "ops", Query{`sum by (result) (rate(trimtab_kernel_writes_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{result}}"}),
		timeSeriesPanel("CPU use of agents", "CPU time of the agent's process, in seconds per second.", "percentunit",
			Query{`rate(process_cpu_seconds_total{` + onSelectedNodes + `}[$__rate_interval]) and on (instance) trimtab_build_info`, "{{instance}}"}),
		timeSeriesPanel("Memory of agents", "Resident memory of the agent's process.", "bytes", Query{`process_resident_memory_bytes{` + onSelectedNodes + `} and on (instance) trimtab_build_info`, "{{instance}}"}),
	}
}

// otherPanels returns the panels about other programs, such as plugins and hook servers, and about the API server.
func otherPanels() []Panel {
	return []Panel{
		timeSeriesPanel("Values restored", "Values that agents wrote again after another program had changed them, per second.", "ops", Query{`sum by (file) (rate(trimtab_drift_corrected_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{file}}"}),
		timeSeriesPanel("CPUs without their class", "CPUs that do not have the frequency or idle states of their CPU class.", "short", Query{`sum by (instance) (trimtab_cpus_without_class{` + onSelectedNodes + `})`, "{{instance}}"}),
		timeSeriesPanel("Frequencies and idle states restored", "Values of CPUs with a CPU class that agents wrote again after another program had changed them, per second.", "ops", Query{`sum by (instance) (rate(trimtab_cpu_class_repairs_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{instance}}"}),
		timeSeriesPanel("Values left to other programs", "Values that another program writes again and again. The agent gives up after keeper.giveUpAfter repairs in a minute.", "short", Query{`sum by (file) (trimtab_contested_values{` + onSelectedNodes + `})`, "{{file}}"}),
		timeSeriesPanel("Updates of the runtime's copies", "Updates of the runtime's stored copies of containers, per second, by result.", "ops", Query{`sum by (result) (rate(trimtab_runtime_updates_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{result}}"}),
		timeSeriesPanel("NRI plugins of the CRI proxy", "Calls of plugins, per second, by result.", "ops", Query{`sum by (plugin, result) (rate(trimtab_nrihost_calls_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{plugin}} {{result}}"}),
		timeSeriesPanel("NRI plugins of the CRI proxy: time", "The time of a call of a plugin: 99 of 100 calls take no longer.", "s", Query{`histogram_quantile(0.99, sum by (le, plugin) (rate(trimtab_nrihost_call_duration_seconds_bucket{` + onSelectedNodes + `}[$__rate_interval])))`, "{{plugin}}"}),
		timeSeriesPanel("Memory moved to slow nodes", "Only with placement.demotion. Bytes that the kernel moved to slow memory, per second.", "Bps", Query{`sum by (instance) (rate(trimtab_memory_demoted_bytes_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{instance}}"}),
		timeSeriesPanel("NRI plugins of the CRI proxy: connected", "1 while the plugin is connected.", "short", Query{`trimtab_nrihost_plugin_connected{` + onSelectedNodes + `}`, "{{plugin}}"}),
		timeSeriesPanel("Hook servers", "Calls of hook servers, per second, by result.", "ops", Query{`sum by (server, result) (rate(trimtab_hookserver_calls_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{server}} {{result}}"}),
		timeSeriesPanel("Resource plugins", "Calls of resource plugins, per second, by result.", "ops", Query{`sum by (resource, result) (rate(trimtab_resourceplugin_calls_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{resource}} {{result}}"}),
		timeSeriesPanel("Resource plugins: not answering", "Plugins that do not answer, and ended pods that a plugin has not released.", "short",
			Query{`sum by (resource) (1 - trimtab_resourceplugin_up{` + onSelectedNodes + `})`, "{{resource}} not answering"},
			Query{`sum by (resource) (trimtab_resourceplugin_pending_removals{` + onSelectedNodes + `})`, "{{resource}} to release"}),
		timeSeriesPanel("Writes to the API server", "Writes of agents, per second, by report and result.", "ops", Query{`sum by (part, result) (rate(trimtab_cluster_writes_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{part}} {{result}}"}),
		timeSeriesPanel("Events of Kubernetes", "Kubernetes events of agents, per second: written, or the reason why not.", "ops", Query{`sum by (result) (rate(trimtab_cluster_events_total{` + onSelectedNodes + `}[$__rate_interval]))`, "{{result}}"}),
		timeSeriesPanel("Configurations from the API server", "Nodes that use a saved copy of the configuration, and configurations that agents refused, per second.", "short",
			Query{`sum(trimtab_config_from_copy{` + onSelectedNodes + `})`, "from the copy"},
			Query{`sum(rate(trimtab_config_refused_total{` + onSelectedNodes + `}[$__rate_interval]))`, "refused a second"}),
		timeSeriesPanel("Agents that do not reach the API server", "The pods on the nodes of these agents are not affected.", "short", Query{`count(trimtab_cluster_reachable{` + onSelectedNodes + `} == 0) or vector(0)`, "agents"}),
		timeSeriesPanel("Reports left to other programs", "Nodes on which another program writes the object of a report, so that the agent does not write it. By report.", "short", Query{`sum by (part) (trimtab_cluster_part_left{` + onSelectedNodes + `})`, "{{part}}"}),
	}
}

// Dashboard returns the dashboard as JSON. Grafana 9 and later versions can import it.
func Dashboard() ([]byte, error) {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	var panels []any
	id, y := 0, 0
	for _, row := range Panels() {
		id++
		panels = append(panels, map[string]any{"id": id, "type": "row", "title": row.Row, "collapsed": false, "panels": []any{}, "gridPos": gridPosition(0, y, 24, 1)})
		y++
		x, high := 0, 0
		for _, p := range row.Panels {
			h := 8
			if p.Kind == "stat" {
				h = 4
			}
			if x+p.Width > 24 {
				x, y, high = 0, y+high, 0
			}
			id++
			panels = append(panels, p.json(id, gridPosition(x, y, p.Width, h), source))
			x, high = x+p.Width, max(high, h)
		}
		y += high
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(map[string]any{
		"title": "Trimtab", "uid": "trimtab", "tags": []string{"kubernetes", "trimtab"}, "schemaVersion": 38, "version": 1, "editable": true,
		"refresh": "30s", "time": map[string]string{"from": "now-6h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
			map[string]any{
				"name": "instance", "label": "Node", "type": "query", "datasource": source, "query": "label_values(trimtab_build_info, instance)",
				"definition": "label_values(trimtab_build_info, instance)", "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
				"current": map[string]any{"text": "All", "value": "$__all"},
			},
		}},
	})
	return out.Bytes(), err
}

// gridPosition returns a position and a size in Grafana's grid as Grafana's JSON has them.
func gridPosition(x, y, w, h int) map[string]int {
	return map[string]int{"x": x, "y": y, "w": w, "h": h}
}

// json returns the panel as Grafana's JSON has it. source is the data source of the queries.
func (p Panel) json(id int, at map[string]int, source map[string]any) map[string]any {
	var targets []any
	for i, q := range p.Queries {
		targets = append(targets, map[string]any{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend, "instant": p.Kind == "stat", "range": p.Kind != "stat"})
	}
	steps := []any{map[string]any{"color": "green", "value": nil}}
	if p.RedFrom > 0 {
		steps = append(steps, map[string]any{"color": "red", "value": p.RedFrom})
	}
	defaults := map[string]any{"unit": p.Unit, "min": 0, "thresholds": map[string]any{"mode": "absolute", "steps": steps}}
	options := map[string]any{"colorMode": "background", "graphMode": "none", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}}}
	if p.Kind == "timeseries" {
		stacking := "none"
		if p.Stack {
			stacking = "normal"
		}
		defaults["custom"] = map[string]any{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "stacking": map[string]any{"mode": stacking, "group": "A"}}
		options = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	}
	return map[string]any{
		"id": id, "type": p.Kind, "title": p.Title, "description": p.About, "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": map[string]any{"defaults": defaults, "overrides": []any{}}, "options": options,
	}
}
