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

// KnownLabelValues has the label values that are known in advance. The series with these label values exist from the
// start with the value 0, so that Prometheus sees the first count as an increase.
type KnownLabelValues struct {
	Hooks         []string // the names of hooks
	RefusedKinds  []string // the kinds of refused requests
	UpdateResults []string // the results of updates of the resources that the runtime stores
	KernelResults []string // the results of writes to the kernel
	// Switches has pairs of attachments: the agent can change from the first attachment of a pair to the second. Ignored
	// has the attachments whose events the agent possibly ignores.
	Switches [][2]string
	Ignored  []string
}

// The buckets of the histograms, in seconds.
var (
	// eventBuckets has small buckets because most events take microseconds, and large buckets for waits for the kernel.
	eventBuckets    = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 1, 5}
	callBuckets     = []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1.5}
	decisionBuckets = []float64{1e-6, 2.5e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 250e-6, 1e-3, 10e-3, 100e-3}
)

// Metrics counts and measures events and calls, and serves the metrics page. It implements nodeview.Recorder.
type Metrics struct {
	registry      *prometheus.Registry
	kernelResults []string // the possible results of writes to the kernel
	families      []Family // the descriptions of the metrics that were added

	// eventCounts and eventSeconds are indexed by the kind of event, so that counting an event needs no lookup by
	// label.
	eventCounts  [lifecycle.Expect + 1]prometheus.Counter
	eventSeconds [lifecycle.Expect + 1]prometheus.Observer

	decisionSeconds     prometheus.Observer
	hookErrors          *prometheus.CounterVec
	refusedRequests     *prometheus.CounterVec
	runtimeUpdates      *prometheus.CounterVec
	attachmentSwitches  *prometheus.CounterVec
	ignoredEvents       *prometheus.CounterVec
	hookServerCalls     callMetrics
	nriPluginCalls      callMetrics
	resourcePluginCalls callMetrics
}

// callMetrics has the metrics about the agent's calls to one kind of program: the number and the duration of the calls.
// The first labels of total are the labels of duration; more labels of total follow.
type callMetrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// count counts a call. durationLabels has the values of duration's labels, and otherLabels the values of the other
// labels of total. took is 0 for a call that the agent skipped.
func (c callMetrics) count(took time.Duration, durationLabels []string, otherLabels ...string) {
	c.total.WithLabelValues(append(durationLabels, otherLabels...)...).Inc()
	if took > 0 {
		c.duration.WithLabelValues(durationLabels...).Observe(took.Seconds())
	}
}

// New returns metrics in a new registry.
func New(b Build, l KnownLabelValues) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), kernelResults: l.KernelResults}
	info := Family{"trimtab_build_info", gauge, []string{"version", "commit", "go"},
		"Always 1; the labels name the build of this program.", ""}
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: info.Name, Help: info.Help}, info.LabelNames)
	built.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	m.add(info, built)
	m.addCounters(l)
	for _, s := range l.Switches {
		m.attachmentSwitches.WithLabelValues(s[0], s[1])
	}
	return m
}

// addCounters adds the counters and histograms of events and calls. A new metric needs a field of Metrics and a line
// here.
func (m *Metrics) addCounters(l KnownLabelValues) {
	m.attachmentSwitches = m.counter(Family{"trimtab_attachment_switches_total", counter, []string{"from", "to"},
		"How often another attachment became the active one (attach: auto).", "from, to: `nri`, `bypass`, or `none` while no attachment is connected"}, nil)
	m.ignoredEvents = m.counter(Family{"trimtab_attachment_ignored_events_total", counter, []string{"mode"},
		"Events that the agent ignored because another attachment was active (attach: auto).", "mode: `bypass`"}, l.Ignored)
	m.hookErrors = m.counter(Family{"trimtab_hook_errors_total", counter, []string{"hook"},
		"Problems that hooks reported, and panics from which the agent recovered.", "hook: a name that `trimtab hooks` lists; `none` for a panic outside of all hooks"}, l.Hooks)
	m.refusedRequests = m.counter(Family{"trimtab_refused_total", counter, []string{"kind"},
		"Requests of pods that the agent did not grant.", "kind: `request` (a pod or container was refused), `annotation` (the annotation is not valid), `authorization` (the pod's namespace may not make the request), `placement` (CPUs or NUMA nodes could not be allocated), `unserved` (no enabled hook or placement policy serves the request), `creation` (the runtime failed the creation after the agent's answer, for example because another plugin set the same field)"}, l.RefusedKinds)
	m.runtimeUpdates = m.counter(Family{"trimtab_runtime_updates_total", counter, []string{"result"},
		"Updates of the resources that the runtime stores for a container.", "result: `done`, `refused` (by the runtime), `failed` (no answer)"}, l.UpdateResults)
	m.hookServerCalls.total = m.counter(Family{"trimtab_hookserver_calls_total", counter, []string{"server", "result"},
		"Calls of hook servers.", "server: the name of the server's file; result: `done`, `failed` (the server answered with an error), `timeout`, `unreachable`, `skipped` (not called, because several calls in a row had no answer), `ended` (the runtime's request was cancelled, or its deadline passed)"}, nil)
	m.hookServerCalls.duration = m.histogram(Family{"trimtab_hookserver_call_duration_seconds", histogram, []string{"server"},
		"Time that calls of hook servers took.", "server: the name of the server's file"}, callBuckets)
	m.nriPluginCalls.total = m.counter(Family{"trimtab_nrihost_calls_total", counter, []string{"plugin", "event", "result"},
		"Requests to plugins of the NRI host (`nriHost`).", "plugin: the index and the name with which the plugin registered; event: NRI's name of the request; result: `done`, `failed` (an error, or no answer in time)"}, nil)
	m.nriPluginCalls.duration = m.histogram(Family{"trimtab_nrihost_call_duration_seconds", histogram, []string{"plugin"},
		"Time that requests to plugins of the NRI host took.", "plugin: the index and the name with which the plugin registered"}, callBuckets)
	m.resourcePluginCalls.total = m.counter(Family{"trimtab_resourceplugin_calls_total", counter, []string{"resource", "method", "result"},
		"Calls of resource plugins (`resourcePlugins`).", "resource: the plugin's resource; method: the name of the gRPC method; result: `done`, `failed` (the plugin answered with an error), `timeout`, `unreachable`, `skipped` (not called, because several calls in a row had no answer), `ahead` (not called: the plugin had answered before the container was created)"}, nil)
	m.resourcePluginCalls.duration = m.histogram(Family{"trimtab_resourceplugin_call_duration_seconds", histogram, []string{"resource", "method"},
		"Time that calls of resource plugins took.", "resource: the plugin's resource; method: the name of the gRPC method"}, callBuckets)
	m.decisionSeconds = m.histogram(Family{"trimtab_decision_duration_seconds", histogram, nil,
		"The part of the time from an event's arrival to its answer in which the agent decided.", ""}, decisionBuckets).WithLabelValues()
	all := m.counter(Family{"trimtab_events_total", counter, []string{"kind"},
		"Events that the agent handled.", "kind: the lifecycle steps as NRI names them, `Configure` for a new configuration, `Inform` for a pod spec that became known or changed, and `Expect` for a container that was decided before the runtime reported it"}, nil)
	took := m.histogram(Family{"trimtab_event_duration_seconds", histogram, []string{"kind"},
		"Time from an event's arrival to its answer: waiting in the queue, gathering of data, deciding and applying.", "kind: the lifecycle steps as NRI names them, `Configure`, `Inform` and `Expect`"}, eventBuckets)
	for k := range m.eventCounts {
		kind := lifecycle.Kind(k).String()
		m.eventCounts[k], m.eventSeconds[k] = all.WithLabelValues(kind), took.WithLabelValues(kind)
	}
}

// counter adds a counter. The series with the label values in known exist from the start.
func (m *Metrics) counter(f Family, known []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.LabelNames)
	for _, k := range known {
		v.WithLabelValues(k)
	}
	m.add(f, v)
	return v
}

// histogram adds a histogram.
func (m *Metrics) histogram(f Family, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: buckets}, f.LabelNames)
	m.add(f, v)
	return v
}

// add adds a metric to the metrics page, and its description to families.
func (m *Metrics) add(f Family, c prometheus.Collector) {
	m.families = append(m.families, f)
	m.registry.MustRegister(c)
}

// AddStateMetrics adds the metrics whose values are read from summary at each request of the page. The caller must call
// it once, before the page is served.
func (m *Metrics) AddStateMetrics(summary func() api.Summary) {
	m.registry.MustRegister(&stateCollector{summary: summary, kernelResults: m.kernelResults})
}

// AddProcessMetrics adds the Prometheus client's metrics of the process and of the Go runtime.
func (m *Metrics) AddProcessMetrics() {
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Handler returns the HTTP handler of the metrics page.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Event counts one handled event. took is the time from the event's arrival to its answer. decision is the part of this
// time in which the agent decided.
func (m *Metrics) Event(kind lifecycle.Kind, took, decision time.Duration) {
	if kind < 0 || int(kind) >= len(m.eventCounts) {
		return
	}
	m.eventCounts[kind].Inc()
	m.eventSeconds[kind].Observe(took.Seconds())
	m.decisionSeconds.Observe(decision.Seconds())
}

// Refused counts a request that the agent did not grant.
func (m *Metrics) Refused(kind string) { m.refusedRequests.WithLabelValues(kind).Inc() }

// HookError counts a hook's problem.
func (m *Metrics) HookError(hook string) { m.hookErrors.WithLabelValues(hook).Inc() }

// HookServerCall counts a call of a hook server.
func (m *Metrics) HookServerCall(server, result string, took time.Duration) {
	m.hookServerCalls.count(took, []string{server}, result)
}

// PluginCall counts a request to a plugin of the NRI host.
func (m *Metrics) PluginCall(plugin, event, result string, took time.Duration) {
	m.nriPluginCalls.count(took, []string{plugin}, event, result)
}

// ResourcePluginCall counts a call of a resource plugin.
func (m *Metrics) ResourcePluginCall(resource, method, result string, took time.Duration) {
	m.resourcePluginCalls.count(took, []string{resource, method}, result)
}

// RuntimeUpdate counts an update of the resources that the runtime stores for a container.
func (m *Metrics) RuntimeUpdate(result string) { m.runtimeUpdates.WithLabelValues(result).Inc() }

// CountSwitch counts that another attachment became the active one.
func (m *Metrics) CountSwitch(from, to string) { m.attachmentSwitches.WithLabelValues(from, to).Inc() }

// CountIgnored counts an event that the agent ignored, because its attachment was not active. mode is the name of the
// attachment.
func (m *Metrics) CountIgnored(mode string) { m.ignoredEvents.WithLabelValues(mode).Inc() }
