package metrics

// family is one metric: what the page, the docs and the tests are made from.
type family struct {
	name   string
	kind   string // counter, gauge or histogram
	labels []string
	help   string
	// values says for people what the labels may be, one clause per label.
	values string
}

// The families, in the order of the docs.
var (
	buildInfo = family{"trimtab_build_info", gauge, []string{"version", "commit", "go"},
		"Always 1; what this program was built from.", ""}
	attached = family{"trimtab_attached", gauge, []string{"mode"},
		"1 where the attachment is registered and what the runtime runs was handed over.", "mode: `nri`, `cri`, `bypass`"}
	connection = family{"trimtab_connection_state", gauge, []string{"mode", "state"},
		"1 for the state the attachment's connection is in, 0 for all others.", "mode: as above; state: those `trimtab status` prints"}
	switches = family{"trimtab_attachment_switches_total", counter, []string{"from", "to"},
		"How often another attachment took over (attach: auto).", "from, to: `nri`, `bypass`, or `none` while neither is connected"}
	ignored = family{"trimtab_attachment_ignored_events_total", counter, []string{"mode"},
		"Events that were not decided because another attachment had the say (attach: auto).", "mode: `bypass`"}
	lastSync = family{"trimtab_last_sync_timestamp_seconds", gauge, nil,
		"When what the runtime runs was last taken over, in seconds since the epoch; 0 for never.", ""}
	events = family{"trimtab_events_total", counter, []string{"kind"},
		"Events handled.", "kind: the lifecycle steps as NRI names them, `Configure` for a new configuration, and `Inform` for a pod spec that became known or changed"}
	eventSeconds = family{"trimtab_event_duration_seconds", histogram, []string{"kind"},
		"Time from an event's arrival to its answer: waiting for its turn, gathering, deciding and applying.", "kind: as above"}
	decisionSeconds = family{"trimtab_decision_duration_seconds", histogram, nil,
		"The part of an event's time that was deciding.", ""}
	hookErrors = family{"trimtab_hook_errors_total", counter, []string{"hook"},
		"Problems that hooks reported and panics they were saved from.", "hook: those of `trimtab hooks`; `none` for a panic outside of all hooks"}
	refused = family{"trimtab_refused_total", counter, []string{"kind"},
		"What was asked for and not granted.", "kind: `request` (a pod or container was refused), `annotation` (it could not be read), `authorisation` (the namespace may not ask for it), `placement` (CPUs or NUMA nodes could not be given)"}
	unapplied = family{"trimtab_unapplied_values", gauge, []string{"reason"},
		"Decided values that are not in force now.", "reason: `not yet`, `no cgroup` (the container runs and its cgroup is not in the tree), `not carried`, `ceded`, `create only`, `bad cgroup`, `kernel refused`, `left alone` (to somebody else who writes it)"}
	noCgroup = family{"trimtab_containers_without_cgroup", gauge, nil,
		"Containers that run and have no cgroup in the tree at cgroup.root: nothing is in force for them.", ""}
	containers = family{"trimtab_containers", gauge, []string{"class"},
		"Live containers.", "class: `none`, `system`, `dedicated`, `shared`, `reclaimed`"}
	podSpecs = family{"trimtab_pods", gauge, []string{"spec"},
		"Pods, by who told what the runtime does not: requests, kinds of containers. Containers of pods nobody told of count as app containers.", "spec: `kubelet Pods API`, `kubelet /pods`, `API server`, `nothing`"}
	poolCPUs = family{"trimtab_pool_cpus", gauge, []string{"pool", "node"},
		"CPUs of a NUMA node that are in a pool now. A CPU may be in several pools.", "pool: `reserved`, `rest`, `shared` (the default one), `named` (all that pods name), `bound` (all that are bound to a NUMA node), `reclaimed`; node: NUMA node"}
	poolContainers = family{"trimtab_pool_containers", gauge, []string{"pool"},
		"Live containers in a pool. Those that own CPUs are in none.", "pool: `rest`, `shared`, `named`, `bound`, `reclaimed`, `system`"}
	exclusiveCPUs = family{"trimtab_exclusive_cpus", gauge, nil,
		"CPUs that containers own.", ""}
	kernelWrites = family{"trimtab_kernel_writes_total", counter, []string{"result"},
		"Values handed to the kernel.", "result: `applied`, `same` (nothing was written), `clipped` (the parent cgroup allows only a part), `pending` (no cgroup yet), `refused`, `left` (to somebody else who writes it)"}
	runtimeUpdates = family{"trimtab_runtime_updates_total", counter, []string{"result"},
		"Updates of the runtime's stored copy of a container.", "result: `done`, `refused` (by the runtime), `failed` (no answer)"}
	hookCalls = family{"trimtab_hookserver_calls_total", counter, []string{"server", "result"},
		"Calls of hook servers.", "server: the name of its file; result: `done`, `failed` (it answered with an error), `timeout`, `unreachable`, `skipped` (left alone after failures in a row), `ended` (the caller gave the event up, or its time was over)"}
	hookSeconds = family{"trimtab_hookserver_call_duration_seconds", histogram, []string{"server"},
		"Time that calls of hook servers took.", "server: as above"}
	hookUp = family{"trimtab_hookserver_up", gauge, []string{"server"},
		"1 where a hook server's file is in force and the server is called; 0 where the file is refused, or the server left alone after failures in a row.", "server: as above"}
	drift = family{"trimtab_drift_corrected_total", counter, []string{"file"},
		"Values put right after somebody else had changed them in the kernel.", "file: the setting, such as `cpuset.cpus`"}
	ceded = family{"trimtab_contested_values", gauge, []string{"file"},
		"Values left to somebody else who writes them again and again (`keeper.giveUpAfter`).", "file: the setting, such as `cpu.quota`"}
	contested = family{"trimtab_contested_lists", gauge, []string{"file"},
		"CPU and memory node lists and partitions that another program keeps changing. They keep containers apart, so they are written again, less often (`keeper.giveUpAfter`).", "file: the setting, such as `cpuset.cpus`"}
	configGeneration = family{"trimtab_config_generation", gauge, nil,
		"Counts the configurations that were in force since the start.", ""}
	configError = family{"trimtab_config_error", gauge, nil,
		"1 where a newer configuration was refused and the one before is in force.", ""}
)

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

func families() []family {
	return []family{
		buildInfo, attached, connection, switches, ignored, lastSync, events, eventSeconds, decisionSeconds, hookErrors, refused,
		unapplied, noCgroup, containers, podSpecs, poolCPUs, poolContainers, exclusiveCPUs, kernelWrites, runtimeUpdates, hookCalls, hookSeconds, hookUp, drift, ceded, contested, configGeneration, configError,
	}
}

// Row is a metric as the docs print it.
type Row struct{ Name, Kind, Labels, Help string }

// Rows returns the table of all metrics.
func Rows() []Row {
	var rows []Row
	for _, f := range families() {
		rows = append(rows, Row{Name: f.name, Kind: f.kind, Labels: f.values, Help: f.help})
	}
	return rows
}
