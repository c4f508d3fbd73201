package real_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// pluginSide is a runtime with empty plugins, and the durations of creations there.
type pluginSide struct {
	name          string
	native, hosts bool
	plugins       int

	c    *real.Containerd
	pod  real.PodID
	took []time.Duration
}

func (s *pluginSide) start(b *testing.B) {
	b.Helper()
	socket := ""
	switch {
	case s.native: // with the agent as one of its plugins
		s.c = real.Start(b)
		startTrimtab(b, s.c, "")
		socket = s.c.NRISocket()
	case s.hosts:
		s.c = real.Start(b, real.WithoutNRI())
		_, socket = startHost(b, s.c, "")
	default:
		s.c = real.Start(b, real.WithoutNRI())
		startProxy(b, s.c, "")
	}
	for i := range s.plugins {
		newPlugin(b).connect(socket, fmt.Sprintf("empty%d", i), fmt.Sprintf("%02d", i))
	}
	s.pod = s.c.RunPod(plain("bench", ""))
}

func (s *pluginSide) create(n int) {
	start := time.Now()
	id := s.c.CreateContainer(s.pod, real.ContainerSpec{Name: fmt.Sprintf("c%d", n)})
	s.took = append(s.took, time.Since(start))
	s.c.RemoveContainer(id)
}

func (s *pluginSide) median() float64 {
	slices.Sort(s.took)
	return float64(s.took[len(s.took)/2].Microseconds()) / 1000
}

// BenchmarkHostedPlugin creates containers with containerd's own NRI, and with NRI off behind the proxy,
// alone and as a host, with empty plugins. All sides run at the same time and alternate, so that other load
// affects all alike.
func BenchmarkHostedPlugin(b *testing.B) {
	sides := []*pluginSide{
		{name: "containerd-0", native: true}, {name: "containerd-1", native: true, plugins: 1}, {name: "proxy"},
		{name: "host-0", hosts: true}, {name: "host-1", hosts: true, plugins: 1}, {name: "host-5", hosts: true, plugins: 5}, {name: "host-10", hosts: true, plugins: 10},
	}
	for _, s := range sides {
		s.start(b)
		s.create(0)
		s.took = nil
	}
	n := 0
	for b.Loop() {
		n++
		for i := range sides {
			sides[(i+n)%len(sides)].create(n)
		}
	}
	medians := map[string]float64{}
	for _, s := range sides {
		medians[s.name] = s.median()
		b.ReportMetric(medians[s.name], "ms/"+s.name)
	}
	b.ReportMetric(medians["host-1"]/medians["containerd-1"], "host-1/containerd-1")
	b.ReportMetric((medians["host-10"]-medians["host-0"])/10, "ms/plugin")
}
