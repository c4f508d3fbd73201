package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trimtab/trimtab/internal/report/api"
)

// state collects from one summary, so that all of a page is of one moment.
type state struct {
	summary func() api.Summary
	kernel  []string
}

// ofState are the families a summary gives.
var ofState = []family{
	attached, connection, lastSync, unapplied, noCgroup, containers, podSpecs, poolCPUs, poolContainers, exclusiveCPUs, kernelWrites, hookUp, drift, ceded, contested, configGeneration, configError,
}

// Describe implements prometheus.Collector.
func (s *state) Describe(out chan<- *prometheus.Desc) {
	for _, f := range ofState {
		out <- f.desc()
	}
}

func (f family) desc() *prometheus.Desc { return prometheus.NewDesc(f.name, f.help, f.labels, nil) }

// Collect implements prometheus.Collector.
func (s *state) Collect(out chan<- prometheus.Metric) {
	n := s.summary()
	put := func(f family, v float64, labels ...string) {
		kind := prometheus.GaugeValue
		if f.kind == counter {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(f.desc(), kind, v, labels...)
	}
	for _, c := range n.Connections {
		put(attached, yes(c.Live), c.Mode)
		for _, st := range c.States {
			put(connection, yes(st == c.State), c.Mode, st)
		}
	}
	for server, up := range n.HookServers {
		put(hookUp, yes(up), server)
	}
	for _, why := range api.Reasons() {
		put(unapplied, float64(n.Unapplied[why]), string(why))
	}
	put(noCgroup, float64(n.WithoutCgroup))
	for class, count := range n.Classes {
		put(containers, float64(count), class)
	}
	for source, count := range n.Specs {
		put(podSpecs, float64(count), string(source))
	}
	for _, p := range n.Pools {
		put(poolCPUs, float64(p.CPUs), p.Pool, strconv.Itoa(p.Node))
	}
	for pool, count := range n.PoolMembers {
		put(poolContainers, float64(count), pool)
	}
	for _, result := range s.kernel {
		put(kernelWrites, float64(n.Kernel[result]), result)
	}
	for file, count := range n.Drift {
		put(drift, float64(count), file)
	}
	for file, count := range n.Ceded {
		put(ceded, float64(count), file)
	}
	for file, count := range n.Contested {
		put(contested, float64(count), file)
	}
	put(exclusiveCPUs, float64(n.Exclusive))
	put(configGeneration, float64(n.ConfigGen))
	put(configError, yes(n.ConfigError))
	synced := 0.0
	if !n.LastSync.IsZero() {
		synced = float64(n.LastSync.UnixMilli()) / 1000
	}
	put(lastSync, synced)
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
