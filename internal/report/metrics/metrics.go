package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// Build has the labels of trimtab_build_info.
type Build struct{ Version, Commit, Go string }

// Labels are label values that are known in advance. Their series start at 0, so that the first count is an
// increase.
type Labels struct {
	Hooks   []string
	Refused []string
	Updates []string
	Kernel  []string
	// Switches are pairs of attachments of which one may take over from the other. Ignored are attachments whose
	// events the agent may drop.
	Switches [][2]string
	Ignored  []string
}

// eventBuckets are for events that take microseconds, but may wait for the kernel.
var (
	eventBuckets    = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 1, 5}
	callBuckets     = []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1.5}
	decisionBuckets = []float64{1e-6, 2.5e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 250e-6, 1e-3, 10e-3, 100e-3}
)

// Metrics counts, and serves the page. It is a nodeview.Recorder.
type Metrics struct {
	registry *prometheus.Registry
	kernel   []string
	counted  []family

	// By kind, so that counting an event needs no lookup.
	events  [lifecycle.Expect + 1]prometheus.Counter
	seconds [lifecycle.Expect + 1]prometheus.Observer

	decisions prometheus.Observer
	hooks     *prometheus.CounterVec
	refused   *prometheus.CounterVec
	updates   *prometheus.CounterVec
	switches  *prometheus.CounterVec
	ignored   *prometheus.CounterVec
	calls     *prometheus.CounterVec
	callTimes *prometheus.HistogramVec
	plugged   *prometheus.CounterVec
	plugTimes *prometheus.HistogramVec
	resources *prometheus.CounterVec
	resTimes  *prometheus.HistogramVec
}

// New makes metrics in a registry of their own.
func New(b Build, l Labels) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), kernel: l.Kernel}
	info := family{"trimtab_build_info", gauge, []string{"version", "commit", "go"},
		"Always 1; the labels name the build of this program.", ""}
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: info.name, Help: info.help}, info.labels)
	built.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	m.add(info, built)
	m.count(l)
	for _, s := range l.Switches {
		m.switches.WithLabelValues(s[0], s[1])
	}
	return m
}

// count makes the metrics that count what happens. A new metric needs a field and a line here.
func (m *Metrics) count(l Labels) {
	m.switches = m.counter(family{"trimtab_attachment_switches_total", counter, []string{"from", "to"},
		"How often another attachment took over (attach: auto).", "from, to: `nri`, `bypass`, or `none` while neither is connected"}, nil)
	m.ignored = m.counter(family{"trimtab_attachment_ignored_events_total", counter, []string{"mode"},
		"Events that the agent ignored because another attachment was active (attach: auto).", "mode: `bypass`"}, l.Ignored)
	m.hooks = m.counter(family{"trimtab_hook_errors_total", counter, []string{"hook"},
		"Problems that hooks reported, and panics from which the agent recovered.", "hook: those of `trimtab hooks`; `none` for a panic outside of all hooks"}, l.Hooks)
	m.refused = m.counter(family{"trimtab_refused_total", counter, []string{"kind"},
		"Requests of pods that the agent did not grant.", "kind: `request` (a pod or container was refused), `annotation` (it could not be read), `authorization` (the namespace may not ask for it), `placement` (CPUs or NUMA nodes could not be given), `unserved` (nothing on this node serves it), `creation` (the runtime failed a creation after the answer, as when another plugin sets the same field)"}, l.Refused)
	m.updates = m.counter(family{"trimtab_runtime_updates_total", counter, []string{"result"},
		"Updates of the runtime's stored copy of a container.", "result: `done`, `refused` (by the runtime), `failed` (no answer)"}, l.Updates)
	m.calls = m.counter(family{"trimtab_hookserver_calls_total", counter, []string{"server", "result"},
		"Calls of hook servers.", "server: the name of its file; result: `done`, `failed` (it answered with an error), `timeout`, `unreachable`, `skipped` (left alone after failures in a row), `ended` (the caller cancelled the event, or its time was over)"}, nil)
	m.callTimes = m.histogram(family{"trimtab_hookserver_call_duration_seconds", histogram, []string{"server"},
		"Time that calls of hook servers took.", "server: as above"}, callBuckets)
	m.plugged = m.counter(family{"trimtab_nrihost_calls_total", counter, []string{"plugin", "event", "result"},
		"Requests to plugins of the NRI host (`nriHost`).", "plugin: index and name, as the plugin registered; event: as NRI names it; result: `done`, `failed` (an error, or no answer in time)"}, nil)
	m.plugTimes = m.histogram(family{"trimtab_nrihost_call_duration_seconds", histogram, []string{"plugin"},
		"Time that requests to plugins of the NRI host took.", "plugin: as above"}, callBuckets)
	m.resources = m.counter(family{"trimtab_resourceplugin_calls_total", counter, []string{"resource", "method", "result"},
		"Calls of resource plugins (`resourcePlugins`).", "resource: that of the plugin; method: as the protocol names it; result: `done`, `failed` (it answered with an error), `timeout`, `unreachable`, `skipped` (left alone after failures in a row), `ahead` (not called: it had answered before the container was created)"}, nil)
	m.resTimes = m.histogram(family{"trimtab_resourceplugin_call_duration_seconds", histogram, []string{"resource", "method"},
		"Time that calls of resource plugins took.", "resource, method: as above"}, callBuckets)
	m.decisions = m.histogram(family{"trimtab_decision_duration_seconds", histogram, nil,
		"The part of an event's time in which the agent decided.", ""}, decisionBuckets).WithLabelValues()
	all := m.counter(family{"trimtab_events_total", counter, []string{"kind"},
		"Events handled.", "kind: the lifecycle steps as NRI names them, `Configure` for a new configuration, `Inform` for a pod spec that became known or changed, and `Expect` for a container that was decided before the runtime reported it"}, nil)
	took := m.histogram(family{"trimtab_event_duration_seconds", histogram, []string{"kind"},
		"Time from an event's arrival to its answer: waiting for its turn, gathering, deciding and applying.", "kind: as above"}, eventBuckets)
	for k := range m.events {
		kind := lifecycle.Kind(k).String()
		m.events[k], m.seconds[k] = all.WithLabelValues(kind), took.WithLabelValues(kind)
	}
}

// counter makes a counter whose series of the known values start at 0.
func (m *Metrics) counter(f family, known []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labels)
	for _, k := range known {
		v.WithLabelValues(k)
	}
	m.add(f, v)
	return v
}

func (m *Metrics) histogram(f family, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.name, Help: f.help, Buckets: buckets}, f.labels)
	m.add(f, v)
	return v
}

func (m *Metrics) add(f family, c prometheus.Collector) {
	m.counted = append(m.counted, f)
	m.registry.MustRegister(c)
}

// Watch adds the metrics that are read from the state at each request of the page. The caller calls it once, before
// the page is served.
func (m *Metrics) Watch(summary func() api.Summary) {
	m.registry.MustRegister(&state{summary: summary, kernel: m.kernel})
}

// WatchProcess adds the usual metrics of the process and its Go runtime.
func (m *Metrics) WatchProcess() {
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Handler serves the page.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Event counts one handled event.
func (m *Metrics) Event(kind lifecycle.Kind, took, decision time.Duration) {
	if kind < 0 || int(kind) >= len(m.events) {
		return
	}
	m.events[kind].Inc()
	m.seconds[kind].Observe(took.Seconds())
	m.decisions.Observe(decision.Seconds())
}

// Refused counts requests that the agent did not grant.
func (m *Metrics) Refused(kind string) { m.refused.WithLabelValues(kind).Inc() }

// HookError counts a hook's problem.
func (m *Metrics) HookError(hook string) { m.hooks.WithLabelValues(hook).Inc() }

// HookServerCall counts a call of a hook server. A call that the agent did not make has no duration.
func (m *Metrics) HookServerCall(server, result string, took time.Duration) {
	m.calls.WithLabelValues(server, result).Inc()
	if took > 0 {
		m.callTimes.WithLabelValues(server).Observe(took.Seconds())
	}
}

// PluginCall counts a request to a plugin of the NRI host.
func (m *Metrics) PluginCall(plugin, event, result string, took time.Duration) {
	m.plugged.WithLabelValues(plugin, event, result).Inc()
	m.plugTimes.WithLabelValues(plugin).Observe(took.Seconds())
}

// ResourcePluginCall counts a call of a resource plugin. A call that the agent did not make has no duration.
func (m *Metrics) ResourcePluginCall(resource, method, result string, took time.Duration) {
	m.resources.WithLabelValues(resource, method, result).Inc()
	if took > 0 {
		m.resTimes.WithLabelValues(resource, method).Observe(took.Seconds())
	}
}

// RuntimeUpdate counts an update of the runtime's copy.
func (m *Metrics) RuntimeUpdate(result string) { m.updates.WithLabelValues(result).Inc() }

// Switched counts that another attachment took over.
func (m *Metrics) Switched(from, to string) { m.switches.WithLabelValues(from, to).Inc() }

// Ignored counts an event of an attachment that was not active.
func (m *Metrics) Ignored(mode string) { m.ignored.WithLabelValues(mode).Inc() }
