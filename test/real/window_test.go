package real_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// BenchmarkWindow measures the unprotected window: from a workload's first instruction, which it stamps itself, until it
// sees its batch values in its own cgroup; 0 where they were there when it first looked. So many pods are run at once as
// the name says. Nothing is asserted: run it on a quiet machine.
func BenchmarkWindow(b *testing.B) {
	for _, mode := range []string{"nri", "bypass"} {
		for _, at := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/%d", mode, at), func(b *testing.B) {
				opts := []real.Option{}
				if mode == "bypass" {
					opts = append(opts, real.WithoutNRI())
				}
				c := real.Start(b, opts...)
				config := ""
				if mode == "bypass" {
					config = beside(c, "")
				}
				startTrimtab(b, c, config)
				var all []time.Duration
				for n := 0; b.Loop(); n++ {
					all = append(all, startTogether(b, c, n, at)...)
				}
				reportWindow(b, all)
			})
		}
	}
}

// startTogether runs pods with a container each, as a kubelet does: each by itself, all at once.
func startTogether(b *testing.B, c *real.Containerd, round, n int) []time.Duration {
	b.Helper()
	windows, errs, pods := make([]time.Duration, n), make([]error, n), make([]real.PodID, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { pods[i], windows[i], errs[i] = window(c, fmt.Sprintf("w%d-%d", round, i)) })
	}
	all.Wait()
	b.StopTimer()
	defer b.StartTimer()
	for i := range n {
		if errs[i] != nil {
			b.Fatal(errs[i])
		}
		c.RemovePod(pods[i])
	}
	return windows
}

func window(c *real.Containerd, name string) (real.PodID, time.Duration, error) {
	pod, err := c.TryRunPod(batchPod(name))
	if err != nil {
		return pod, 0, err
	}
	id, err := c.TryCreateContainer(pod, real.ContainerSpec{
		Name: name, Args: []string{"await", "cpu.shares=512", "cpu.cfs_quota_us=100000", "memory.limit_in_bytes=134217728"},
		Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000},
	})
	if err == nil {
		err = c.TryStartContainer(id)
	}
	if err != nil {
		return pod, 0, err
	}
	first, err := c.TryFirstView(id)
	if err != nil {
		return pod, 0, err
	}
	if first.Cgroup["cpu.shares"] == "512" && first.Cgroup["cpu.cfs_quota_us"] == "100000" && first.Cgroup["memory.limit_in_bytes"] == "134217728" {
		return pod, 0, nil
	}
	started, seen, err := c.TryInForce(id)
	return pod, seen.Sub(started), err
}

func reportWindow(b *testing.B, all []time.Duration) {
	b.Helper()
	slices.Sort(all)
	ms := func(part float64) float64 {
		return float64(all[int(part*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	before := 0
	for _, d := range all {
		if d == 0 {
			before++
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(before)/float64(len(all)), "%before")
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
	b.ReportMetric(ms(1), "max-ms")
}
