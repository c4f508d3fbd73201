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

// Build is what trimtab_build_info says.
type Build struct{ Version, Commit, Go string }

// Labels are values known beforehand: their series start at 0, so that the
// first count is a rise.
type Labels struct {
	Hooks   []string
	Refused []string
	Updates []string
	Kernel  []string
	// Switches are pairs of attachments, of which one may take over from the
	// other, and Ignored those whose events may go unheeded.
	Switches [][2]string
	Ignored  []string
}

// eventBuckets are for work of microseconds that may wait for the kernel.
var (
	eventBuckets    = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 1, 5}
	callBuckets     = []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1.5}
	decisionBuckets = []float64{1e-6, 2.5e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 250e-6, 1e-3, 10e-3, 100e-3}
)

// Metrics counts, and serves the page. It is a nodeview.Recorder.
type Metrics struct {
	registry *prometheus.Registry
	kernel   []string

	// By kind, so that counting an event looks nothing up.
	events  [lifecycle.Inform + 1]prometheus.Counter
	seconds [lifecycle.Inform + 1]prometheus.Observer

	decisions prometheus.Histogram
	hooks     *prometheus.CounterVec
	refused   *prometheus.CounterVec
	updates   *prometheus.CounterVec
	switches  *prometheus.CounterVec
	ignored   *prometheus.CounterVec
	calls     *prometheus.CounterVec
	callTimes *prometheus.HistogramVec
}

// New makes metrics in a registry of their own.
func New(b Build, l Labels) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), kernel: l.Kernel}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.name, Help: buildInfo.help}, buildInfo.labels)
	info.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	count := func(f family, known []string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help}, f.labels)
		for _, k := range known {
			v.WithLabelValues(k)
		}
		m.registry.MustRegister(v)
		return v
	}
	m.hooks = count(hookErrors, l.Hooks)
	m.refused = count(refused, l.Refused)
	m.updates = count(runtimeUpdates, l.Updates)
	m.switches, m.ignored = count(switches, nil), count(ignored, l.Ignored)
	for _, s := range l.Switches {
		m.switches.WithLabelValues(s[0], s[1])
	}
	all := count(events, nil)
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: eventSeconds.name, Help: eventSeconds.help, Buckets: eventBuckets,
	}, eventSeconds.labels)
	for k := range m.events {
		kind := lifecycle.Kind(k).String()
		m.events[k], m.seconds[k] = all.WithLabelValues(kind), took.WithLabelValues(kind)
	}
	m.decisions = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: decisionSeconds.name, Help: decisionSeconds.help, Buckets: decisionBuckets,
	})
	m.calls = count(hookCalls, nil)
	m.callTimes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: hookSeconds.name, Help: hookSeconds.help, Buckets: callBuckets,
	}, hookSeconds.labels)
	m.registry.MustRegister(info, took, m.decisions, m.callTimes)
	return m
}

// Watch adds what is read from the state each time the page is asked for. It is
// called once, before Handler's page is.
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

// Refused counts what was asked for and not granted.
func (m *Metrics) Refused(kind string) { m.refused.WithLabelValues(kind).Inc() }

// HookError counts a hook's problem.
func (m *Metrics) HookError(hook string) { m.hooks.WithLabelValues(hook).Inc() }

// HookServerCall counts a call of a hook server. One that was not made took no
// time.
func (m *Metrics) HookServerCall(server, result string, took time.Duration) {
	m.calls.WithLabelValues(server, result).Inc()
	if took > 0 {
		m.callTimes.WithLabelValues(server).Observe(took.Seconds())
	}
}

// RuntimeUpdate counts an update of the runtime's copy.
func (m *Metrics) RuntimeUpdate(result string) { m.updates.WithLabelValues(result).Inc() }

// Switched counts that another attachment took over.
func (m *Metrics) Switched(from, to string) { m.switches.WithLabelValues(from, to).Inc() }

// Ignored counts an event of an attachment that had not the say.
func (m *Metrics) Ignored(mode string) { m.ignored.WithLabelValues(mode).Inc() }
