package nodemetric

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const gib = 1 << 30

// busy is a history of readings every 15 s for d: the node uses two CPUs, and three in each fourth step;
// pod a uses one CPU.
func busy(d time.Duration) *History {
	h := &History{}
	var node, a time.Duration
	for i := 0; time.Duration(i)*step <= d; i++ {
		if i > 0 {
			node, a = node+2*step, a+step
			if i%4 == 0 {
				node += step
			}
		}
		h.Add(Reading{At: start.Add(time.Duration(i) * step), Node: Counter{node, 4 * gib}, Pods: map[Pod]Counter{
			{Namespace: "d", Name: "a", UID: "ua", QoS: "BE", Priority: "koord-batch"}: {a, gib},
		}}, 5*time.Minute)
	}
	return h
}

const step = 15 * time.Second

// TestStatus: the usage of node, pods and system follows from the counters, in Koordinator's format.
func TestStatus(t *testing.T) {
	got, err := json.MarshalIndent(busy(10*time.Minute).Status(Policy{}, "2026-01-02T03:14:05Z"), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var o, want any
	if err := json.Unmarshal(got, &o); err != nil {
		t.Fatal(err)
	}
	usage := func(cpu, memory string) string {
		return `{"resources":{"cpu":"` + cpu + `","memory":"` + memory + `"}}`
	}
	node := usage("2250m", "4294967296")
	aggregated := `"usage":{"avg":` + node + `,"p50":` + usage("2000m", "4294967296") + `,"p90":` + usage("3000m", "4294967296") + `,"p95":` + usage("3000m", "4294967296") + `,"p99":` + usage("3000m", "4294967296") + `}`
	text := `{"status":{"updateTime":"2026-01-02T03:14:05Z",
		"nodeMetric":{"nodeUsage":` + node + `,"systemUsage":` + usage("1250m", "3221225472") + `,
			"aggregatedNodeUsages":[{"duration":"5m0s",` + aggregated + `},{"duration":"10m0s",` + aggregated + `}]},
		"podsMetric":[{"namespace":"d","name":"a","qos":"BE","priority":"koord-batch","podUsage":` + usage("1000m", "1073741824") + `}]}}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, o); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestOddReadings: a counter that decreased, a new pod, and an ended pod are ignored.
func TestOddReadings(t *testing.T) {
	back, fresh, ended := Pod{Name: "back"}, Pod{Name: "fresh"}, Pod{Name: "ended"}
	h := &History{}
	if h.CanReport() {
		t.Error("an empty history is enough")
	}
	h.Add(Reading{At: start, Node: Counter{time.Hour, 1}, Pods: map[Pod]Counter{back: {time.Hour, 1}, ended: {1, 1}}}, time.Minute)
	if h.CanReport() {
		t.Error("one reading is enough")
	}
	h.Add(Reading{At: start.Add(step), Node: Counter{time.Hour, 1}, Pods: map[Pod]Counter{back: {time.Second, 3}, fresh: {time.Second, 1}}}, time.Minute)
	if !h.CanReport() {
		t.Error("two readings are not enough")
	}
	all, _ := h.lastReadings(time.Minute)
	if d := cmp.Diff(map[Pod]Usage{back: {0, 2}}, podsUsage(all)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	status := h.Status(Policy{}, "")["status"].(map[string]any)
	if _, has := status["nodeMetric"].(map[string]any)["aggregatedNodeUsages"]; has {
		t.Error("percentiles of 15 s")
	}
}

// TestForgets: readings older than the longest duration are dropped, and pods of readings older than the
// average's.
func TestForgets(t *testing.T) {
	h := busy(2 * time.Hour)
	if want := int(retention/step) + 1; len(h.readings) != want {
		t.Errorf("%d readings are kept, want %d", len(h.readings), want)
	}
	pods := 0
	for _, r := range h.readings {
		if r.Pods != nil {
			pods++
		}
	}
	if want := int(5*time.Minute/step) + 1; pods != want {
		t.Errorf("%d readings have pods, want %d", pods, want)
	}
}

// TestPolicy: the values of Koordinator's manager are limited to bounds.
func TestPolicy(t *testing.T) {
	object := func(text string) (o map[string]any) {
		wanted := map[string]any{}
		if err := json.Unmarshal([]byte(text), &wanted); err != nil {
			t.Fatal(err)
		}
		for key, v := range wanted {
			if n, ok := v.(float64); ok {
				wanted[key] = int64(n)
			}
		}
		return map[string]any{"spec": map[string]any{"metricCollectPolicy": wanted}}
	}
	usual := Policy{time.Minute, 5 * time.Minute, []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Minute}}
	for _, tc := range []struct {
		name string
		in   map[string]any
		want Policy
	}{
		{"nothing", map[string]any{}, usual},
		{"strange", map[string]any{"spec": map[string]any{"metricCollectPolicy": "often"}}, usual},
		{"values", object(`{"aggregateDurationSeconds":120,"reportIntervalSeconds":90,"nodeAggregatePolicy":{"durations":["1m","x","48h"]}}`),
			Policy{90 * time.Second, 2 * time.Minute, []time.Duration{time.Minute}}},
		{"too often", object(`{"aggregateDurationSeconds":1,"reportIntervalSeconds":1}`), Policy{30 * time.Second, time.Minute, usual.Durations}},
	} {
		if d := cmp.Diff(tc.want, PolicyOf(tc.in)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, d)
		}
	}
}
