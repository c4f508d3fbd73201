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

// attachedTo starts a containerd and an agent with an attachment.
func attachedTo(b *testing.B, mode string) (*real.Containerd, *trimtab) {
	b.Helper()
	if mode == "nri" {
		c := real.Start(b)
		return c, startTrimtab(b, c, "")
	}
	c := real.Start(b, real.WithoutNRI())
	if mode == "cri" {
		return c, startProxy(b, c, "")
	}
	return c, startTrimtab(b, c, bypassConfig(c, ""))
}

// BenchmarkWindow measures the unprotected window: from a workload's first instruction, as the workload notes it, until
// it reads its batch values in its own cgroup; 0 if its first read has them. The name has the number of containers that
// start at once. It asserts nothing and needs a quiet machine.
func BenchmarkWindow(b *testing.B) {
	for _, mode := range []string{"nri", "bypass", "cri"} {
		for _, at := range []int{1, 50, 200} {
			b.Run(fmt.Sprintf("%s/%d", mode, at), func(b *testing.B) {
				c, _ := attachedTo(b, mode)
				var all []time.Duration
				for n := 0; b.Loop(); n++ {
					b.StopTimer()
					made := makePods(b, c, n, at)
					b.StartTimer()
					all = append(all, startTogether(b, c, made)...)
					b.StopTimer()
					made.remove(b, c)
					b.StartTimer()
				}
				reportTimes(b, all)
			})
		}
	}
}

// BenchmarkRepair measures how long a foreign write stays: from the write until the file has our value again. Each
// write is to another container's file, so that the agent does not see a write conflict.
func BenchmarkRepair(b *testing.B) {
	for _, mode := range []string{"nri", "bypass", "cri"} {
		b.Run(mode, func(b *testing.B) {
			const at = 8
			c, _ := attachedTo(b, mode)
			made := makePods(b, c, 0, at)
			startTogether(b, c, made)
			var all []time.Duration
			for b.Loop() {
				for _, id := range made.ctrs {
					begun := time.Now()
					c.WriteKernelFile(id, "cpu.shares", "64")
					real.Eventually(b, patiently, func() error {
						if got := c.KernelFile(id, "cpu.shares"); got != "512" {
							return fmt.Errorf("cpu.shares is %s", got)
						}
						return nil
					})
					all = append(all, time.Since(begun))
				}
			}
			reportTimes(b, all)
		})
	}
}

// batch has pods with one created container each.
type batch struct {
	pods []real.PodID
	ctrs []real.ContainerID
}

// makePods runs pods a few at a time, like a kubelet.
func makePods(b *testing.B, c *real.Containerd, round, n int) batch {
	b.Helper()
	made := batch{make([]real.PodID, n), make([]real.ContainerID, n)}
	few(b, n, func(i int) (err error) {
		name := fmt.Sprintf("w%d-%d", round, i)
		if made.pods[i], err = c.TryRunPod(batchPod(name)); err != nil {
			return err
		}
		made.ctrs[i], err = c.TryCreateContainer(made.pods[i], real.ContainerSpec{
			Name: name, Args: []string{"await", "cpu.shares=512", "cpu.cfs_quota_us=100000", "memory.limit_in_bytes=134217728"},
			Resources: &cri.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000},
		})
		return err
	})
	return made
}

// few calls do n times, four calls at once.
func few(b *testing.B, n int, do func(i int) error) {
	b.Helper()
	errs, slots := make([]error, n), make(chan struct{}, 4)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (m batch) remove(b *testing.B, c *real.Containerd) {
	b.Helper()
	few(b, len(m.pods), func(i int) error { return c.TryRemovePod(m.pods[i]) })
}

// startTogether starts all containers at once.
func startTogether(b *testing.B, c *real.Containerd, made batch) []time.Duration {
	b.Helper()
	windows, errs := make([]time.Duration, len(made.ctrs)), make([]error, len(made.ctrs))
	var all sync.WaitGroup
	for i, id := range made.ctrs {
		all.Go(func() {
			if errs[i] = c.TryStartContainer(id); errs[i] == nil {
				windows[i], errs[i] = window(c, id)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	return windows
}

func window(c *real.Containerd, id real.ContainerID) (time.Duration, error) {
	first, err := c.TryFirstView(id)
	if err != nil {
		return 0, err
	}
	if first.Cgroup["cpu.shares"] == "512" && first.Cgroup["cpu.cfs_quota_us"] == "100000" && first.Cgroup["memory.limit_in_bytes"] == "134217728" {
		return 0, nil
	}
	started, seen, err := c.TryInForce(id)
	return seen.Sub(started), err
}

func reportTimes(b *testing.B, all []time.Duration) {
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
