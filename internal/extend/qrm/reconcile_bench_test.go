package qrm_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/extend/qrm"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// listed is a plugin with allocations for many containers.
type listed struct {
	reporter

	all *api.GetResourcesAllocationResponse
}

func (l *listed) GetResourcesAllocation(context.Context, *api.GetResourcesAllocationRequest) (*api.GetResourcesAllocationResponse, error) {
	return l.all, nil
}

// BenchmarkReconcile is one reconcile of 1,000 containers that have something of two plugins, and what the manager
// reads of their reports in the same time. The processor time is that of the whole process, plugins included, as a
// share of one CPU at the default period.
func BenchmarkReconcile(b *testing.B) {
	const containers, period = 1000, 5 * time.Second
	for _, reports := range []bool{false, true} {
		b.Run(fmt.Sprintf("reports=%v", reports), func(b *testing.B) {
			var late atomic.Int64 // what the clock is ahead, so that reports are due
			m := qrm.New(qrm.Options{
				Directory: b.TempDir(), Timeout: time.Minute, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) },
			})
			b.Cleanup(m.Close)
			resources := serveListed(b, m, containers, reports)
			spec := &lifecycle.PodSpec{QoS: "Guaranteed", Containers: []lifecycle.ContainerSpec{{Name: "app", Requests: lifecycle.Amounts{}}}}
			for _, r := range resources {
				spec.Containers[0].Requests[r] = 1
			}
			for i := range containers {
				q := m.Question(&lifecycle.Pod{UID: fmt.Sprint("u", i), Name: "p", Namespace: "d"}, app("app"), spec)
				if a, err := q.Allocate(b.Context(), nil); err != nil || len(a.Problems) > 0 {
					b.Fatal(a.Problems, err)
				}
			}
			m.ReconcileOnce(b.Context())
			begin := processTime(b)
			for b.Loop() {
				late.Add(int64(period))
				m.ReconcileOnce(b.Context())
			}
			used := (processTime(b) - begin) / time.Duration(b.N)
			b.ReportMetric(float64(used.Microseconds()), "cpu-µs/reconcile")
			b.ReportMetric(float64(used)*100/float64(period), "%-of-a-CPU")
		})
	}
}

// serveListed registers two plugins whose answers have all containers, and returns their resources.
func serveListed(b *testing.B, m *qrm.Manager, containers int, reports bool) []string {
	b.Helper()
	dir := b.TempDir()
	resources := []string{"example.com/nic", "example.com/pool"}
	for i, r := range resources {
		info := &api.ResourceAllocationInfo{
			OciPropertyName: "CpusetMems", AllocationResult: "0", IsNodeResource: true, IsScalarResource: true, AllocatedQuantity: 1,
			Envs: map[string]string{"GIVEN": "eth1"}, TopologyAssignments: map[uint64]uint64{0: 1},
		}
		l := &listed{all: &api.GetResourcesAllocationResponse{PodResources: map[string]*api.ContainerResources{}}}
		l.fake = &fake{allocate: func(context.Context, *api.ResourceRequest) (*api.ResourceAllocation, error) {
			return allocation(r, info), nil
		}}
		for n := range containers {
			l.all.PodResources[fmt.Sprint("u", n)] = &api.ContainerResources{ContainerResources: map[string]*api.ResourceAllocation{"app": allocation(r, info)}}
		}
		l.reports(func(q *api.GetTopologyAwareResourcesRequest) (*api.GetTopologyAwareResourcesResponse, error) {
			return said(q.GetPodUid(), q.GetContainerName(), &api.TopologyAwareResource{AggregatedQuantity: 1, TopologyAwareQuantityList: onEth1}), nil
		})
		var served api.ResourcePluginServer = l
		if !reports {
			served = &unreported{fake: l.fake, all: l.all}
		}
		path := filepath.Join(dir, fmt.Sprint(i, ".sock"))
		at, err := (&net.ListenConfig{}).Listen(b.Context(), "unix", path)
		if err != nil {
			b.Fatal(err)
		}
		s := grpc.NewServer()
		api.RegisterResourcePluginServer(s, served)
		done := make(chan error, 1)
		go func() { done <- s.Serve(at) }()
		b.Cleanup(func() { s.Stop(); <-done })
		if err := m.Register(b.Context(), r, path); err != nil {
			b.Fatal(err)
		}
	}
	return resources
}

// unreported is a listed plugin without reports.
type unreported struct {
	*fake

	all *api.GetResourcesAllocationResponse
}

func (u *unreported) GetResourcesAllocation(context.Context, *api.GetResourcesAllocationRequest) (*api.GetResourcesAllocationResponse, error) {
	return u.all, nil
}

// processTime is the processor time of the process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
