package intent

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func resources(shares uint64, quota int64, period uint64) *lifecycle.Resources {
	var r lifecycle.Resources
	r.CPU = lifecycle.CPU{Shares: lifecycle.Some(shares), Quota: lifecycle.Some(quota), Period: lifecycle.Some(period)}
	return &r
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *lifecycle.Resources
		qos  QoS
		want PaidCPUs
	}{
		{"nothing", nil, Burstable, PaidCPUs{}},
		{"empty", &lifecycle.Resources{}, Burstable, PaidCPUs{}},
		{"BestEffort", resources(2, 0, 0), BestEffort, PaidCPUs{0, 0, "request"}},
		{"limit and equal request", resources(2048, 200000, 100000), Guaranteed, PaidCPUs{2, 2000, "limit"}},
		{"a limit, and no request reported", resources(0, 200000, 0), Burstable, PaidCPUs{}},
		{"a limit, and no request reported: Guaranteed", resources(0, 200000, 0), Guaranteed, PaidCPUs{2, 2000, "limit"}},
		{"a limit and a request of nothing", resources(2, 6400000, 100000), Burstable, PaidCPUs{0, 0, "request"}},
		{"request alone", resources(2048, -1, 100000), Burstable, PaidCPUs{2, 2000, "request"}},
		{"a hundredth of a CPU", resources(10, -1, 100000), Burstable, PaidCPUs{0, 10, "request"}},
		{"small request, large limit", resources(102, 6400000, 100000), Burstable, PaidCPUs{0, 100, "request"}},
		{"rounded down", resources(1536, 150000, 100000), Guaranteed, PaidCPUs{1, 1500, "limit"}},
		{"just below", resources(2046, -1, 100000), Burstable, PaidCPUs{1, 1999, "request"}},
		{"another period", resources(2048, 20000, 10000), Guaranteed, PaidCPUs{2, 2000, "limit"}},
		{"a quota just below", resources(4096, 299999, 100000), Burstable, PaidCPUs{2, 2999, "limit"}},
		{"a request above what shares tell", resources(262144, 30000000, 100000), Guaranteed, PaidCPUs{300, 300000, "limit"}},
		{"and no proof that it equals the limit", resources(262144, 30000000, 100000), Burstable, PaidCPUs{256, 256000, "request"}},
		{"largest shares", resources(math.MaxUint64, 100000, 100000), Burstable, PaidCPUs{1, 1000, "limit"}},
		{"largest quota", resources(2048, math.MaxInt64, 1), Burstable, PaidCPUs{2, 2000, "request"}},
		{"largest period", resources(4096, 200000, math.MaxUint64), Burstable, PaidCPUs{2, 2000, "limit"}},
		{"smallest quota", resources(0, math.MinInt64, 1), Burstable, PaidCPUs{}},
	} {
		if got := CountPaidCPUs(c.r, c.qos); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// kubeletShares is MilliCPUToShares of Kubernetes 1.36.
func kubeletShares(milli int64) uint64 {
	if milli == 0 {
		return 2
	}
	return uint64(min(max(milli*1024/1000, 2), 262144))
}

// TestDueIsExact: the request is computed exactly, in thousandths, from what the kubelet reports. So no pod
// owns more than it pays for, and no whole sum is too small because its parts were rounded.
func TestDueIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum, parts int64
		for _, milli := range rapid.SliceOfN(rapid.Int64Range(3, 20000), 1, 12).Draw(t, "requests") {
			sum, parts = sum+milli, parts+MilliFromShares(kubeletShares(milli))
			if SharesFromMilli(milli) != kubeletShares(milli) {
				t.Fatalf("%d thousandths are %d shares, want %d", milli, SharesFromMilli(milli), kubeletShares(milli))
			}
		}
		if sum != parts {
			t.Fatalf("requests of %d thousandths count as %d", sum, parts)
		}
		if got, want := CountPaidCPUs(resources(kubeletShares(sum), -1, 100000), Burstable).CPUs, int(sum/1000); got != want {
			t.Fatalf("a request of %d thousandths pays for %d CPUs, want %d", sum, got, want)
		}
		period := rapid.Uint64Range(1000, 1000000).Draw(t, "period")
		quota := sum * int64(period) / 1000
		if got, want := CountPaidCPUs(resources(262144, quota, period), Burstable), (PaidCPUs{int(sum / 1000), sum, "limit"}); sum < 256000 && got != want {
			t.Fatalf("a limit of %d thousandths is %+v, want %+v", sum, got, want)
		}
	})
}

func TestCPUs(t *testing.T) {
	rule := func(d Decision, most int) Rules {
		return Rules{{Kinds: []Kind{AssignedCPUs}, Namespaces: []string{"*"}, Decision: d, MostCPUs: most, Name: "rule 1"}}
	}
	two, four := resources(2048, 200000, 100000), resources(4096, 400000, 100000)
	for _, c := range []struct {
		name           string
		rules          Rules
		n              int
		pod, container *lifecycle.Resources
		want           string
	}{
		{name: "as many as the pod has", n: 4, pod: four, container: two},
		{name: "a sidecar without a limit", n: 4, pod: four, container: resources(2, 0, 0)},
		{name: "more than the pod has", n: 5, pod: four, container: resources(8192, 800000, 100000), want: "5 CPUs are more than the pod's CPU limit of 4"},
		{name: "the pod's resources are unknown", n: 2, container: two},
		{name: "more than the container's", n: 3, container: two, want: "the container's CPU limit of 2"},
		{name: "nothing reported", n: 1, want: "neither"},
		{name: "a request of nothing", n: 1, pod: resources(2, 0, 0), container: two, want: "1 CPUs are more than the pod's CPU request of 0"},
		{name: "a hundredth of a CPU", n: 1, pod: resources(10, -1, 0), want: "1 CPUs are more than the pod's CPU request of 0.01, rounded down to 0"},
		{name: "one and a half", n: 2, pod: resources(1536, 400000, 100000), want: "2 CPUs are more than the pod's CPU request of 1.5, rounded down to 1"},
		{name: "a limit below the request's", n: 2, pod: resources(4096, 190000, 100000), want: "2 CPUs are more than the pod's CPU limit of 1.9, rounded down to 1"},
		{name: "a limit, and no request reported", n: 1, container: resources(0, 200000, 100000), want: "a CPU limit and no CPU request"},
		{name: "allowed", rules: rule(Allow, 0), n: 99},
		{name: "refused", rules: rule(Refuse, 0), n: 1, pod: four, want: "may not ask for it (authorization: rule 1)"},
		{name: "bounded", rules: rule(Cap, 3), n: 4, pod: four, want: "more than the 3 that"},
		{name: "within the bound", rules: rule(Cap, 4), n: 4, pod: four},
		{name: "the bound is not a grant", rules: rule(Cap, 8), n: 5, pod: four, want: "limit of 4"},
	} {
		got := ""
		if err := c.rules.CheckCPUs("shop", c.n, PayingResources{Pod: c.pod, Container: c.container, QoS: Burstable}); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
