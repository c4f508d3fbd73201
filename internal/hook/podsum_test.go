package hook

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestAppsAreSummedTheSame: for pods with only app containers the kubelet's formula gives the sums of the
// annotation.
func TestAppsAreSummedTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		amount := rapid.Int64Range(-2, 1<<40)
		spec, asks := &lifecycle.PodSpec{}, map[string]intent.Batch{}
		for i := range rapid.IntRange(1, 5).Draw(rt, "containers") {
			name := fmt.Sprint("c", i)
			spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: name})
			asks[name] = intent.Batch{
				RequestCPU: amount.Draw(rt, "request"), LimitCPU: amount.Draw(rt, "cpu"), LimitMemory: amount.Draw(rt, "memory"),
			}
		}
		if got, want := kubeletSum(spec, asks), sumBatch(asks); got != want {
			rt.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestKubeletSum: the cases of Kubernetes' PodRequests and PodLimits that need init containers; the
// scenario podspec has more.
func TestKubeletSum(t *testing.T) {
	limit := func(cpu, memory int64) intent.Batch {
		return intent.Batch{RequestCPU: cpu, LimitCPU: cpu, LimitMemory: memory}
	}
	for _, c := range []struct {
		name     string
		kinds    []lifecycle.ContainerKind
		asks     []intent.Batch
		overhead lifecycle.Amounts
		want     intent.Batch
	}{
		{"the largest init container, resource by resource", []lifecycle.ContainerKind{lifecycle.Init, lifecycle.Init, lifecycle.App},
			[]intent.Batch{limit(9, 1), limit(1, 9), limit(5, 5)}, nil, limit(9, 9)},
		{"sidecars before an init container run beside it", []lifecycle.ContainerKind{lifecycle.Sidecar, lifecycle.Init, lifecycle.App},
			[]intent.Batch{limit(2, 2), limit(8, 8), limit(1, 1)}, nil, limit(10, 10)},
		{"sidecars after it do not", []lifecycle.ContainerKind{lifecycle.Init, lifecycle.Sidecar, lifecycle.App},
			[]intent.Batch{limit(8, 8), limit(2, 2), limit(1, 1)}, nil, limit(8, 8)},
		{"an init container without a limit is limited beside a sidecar with one", []lifecycle.ContainerKind{lifecycle.Sidecar, lifecycle.Init, lifecycle.App},
			[]intent.Batch{limit(2, 2), {}, limit(1, 1)}, nil, limit(3, 3)},
		{"and alone it is not", []lifecycle.ContainerKind{lifecycle.Init, lifecycle.App},
			[]intent.Batch{{}, limit(1, 1)}, nil, intent.Batch{RequestCPU: 1, LimitCPU: -1, LimitMemory: -1}},
		{"overhead is added to what is limited", []lifecycle.ContainerKind{lifecycle.App}, []intent.Batch{{RequestCPU: 1, LimitCPU: 1}},
			lifecycle.Amounts{"cpu": 4, "memory": 7}, intent.Batch{RequestCPU: 5, LimitCPU: 5, LimitMemory: -1}},
		{"too much is no limit", []lifecycle.ContainerKind{lifecycle.App, lifecycle.App},
			[]intent.Batch{limit(math.MaxInt64, 1), limit(1, 1)}, nil, intent.Batch{RequestCPU: math.MaxInt64, LimitCPU: -1, LimitMemory: 2}},
	} {
		spec, asks := &lifecycle.PodSpec{Overhead: c.overhead}, map[string]intent.Batch{}
		for i, k := range c.kinds {
			name := fmt.Sprint("c", i)
			spec.Containers = append(spec.Containers, lifecycle.ContainerSpec{Name: name, Kind: k})
			asks[name] = c.asks[i]
		}
		if got := kubeletSum(spec, asks); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
