package metrics

import (
	"flag"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sample() *Metrics {
	m := New(Build{Version: "v1.2.3", Commit: "abc", Go: "go1.26"}, KnownLabelValues{
		Hooks: []string{"cpuset", "none"}, RefusedKinds: []string{"request", "annotation"}, UpdateResults: []string{"done", "refused", "failed"},
		KernelResults: []string{"applied", "same", "refused"}, Switches: [][2]string{{"none", "nri"}, {"nri", "none"}}, Ignored: []string{"bypass"},
	})
	m.AddStateMetrics(func() api.Summary {
		return api.Summary{
			Connections: []api.Connection{{Attachment: "nri", State: "synchronised", States: []string{"synchronised", "connection lost"}, Live: true}},
			Classes:     map[string]int{"none": 3, "dedicated": 1, "reclaimed": 0},
			Unapplied:   map[api.MissingReason]int{api.KernelRefused: 2}, WithoutCgroup: 2,
			Specs:       map[lifecycle.Source]int{lifecycle.FromPodsAPI: 2, lifecycle.FromNothing: 1},
			Pools:       []api.PoolSize{{Pool: "shared", Node: 0, CPUs: 6}, {Pool: "shared", Node: 1, CPUs: 8}},
			PoolMembers: map[string]int{"shared": 3, "named": 1},
			Exclusive:   2,
			Kernel:      map[string]uint64{"applied": 40, "same": 2},
			Drift:       map[string]uint64{"cpuset.cpus": 1},
			Ceded:       map[string]int{"cpu.quota": 1},
			Contested:   map[string]int{"cpuset.cpus": 2},
			LastSync:    time.Unix(1_700_000_000, 500_000_000),
			ConfigGen:   3, ConfigError: true,
			HookServers:     map[string]bool{"10-a.json": true, "20-b.json": false},
			ResourcePlugins: map[string]bool{"example.com/nic": true, "cpu": false}, PendingRemovals: map[string]int{"cpu": 2},
			NRIPlugins: map[string]bool{"10-devices": true},
			CPUClasses: &api.CPUClassCounts{WithoutClass: 2, Repairs: 5},
			Demotion:   &api.Demotion{Containers: 2, Moved: 3 << 20},
			Observed:   &api.Observed{Compared: 40, Differ: 3, Settings: map[string]int{"cpuset.cpus": 3}},
			Cluster: &api.Cluster{Reached: time.Unix(1_700_000_100, 0), Events: map[string]uint64{"written": 5, "limited": 0, "full": 2, "refused": 0}, Parts: []api.ClusterPart{
				{Name: "NodeResourceTopology", Error: "no CRD", Written: 7, Skipped: 900, Failed: 1},
			}, Config: &api.ClusterConfig{
				From: api.FromServer, RefusedTotal: 2, Layers: []api.ConfigLayer{{Name: "Node n1"}, {Name: "ConfigMap trimtab/trimtab-cluster", Version: "4711"}},
			}},
		}
	})
	m.Event(lifecycle.CreateContainer, 180*time.Microsecond, 4*time.Microsecond)
	m.Event(lifecycle.CreateContainer, 90*time.Microsecond, 3*time.Microsecond)
	m.Event(lifecycle.Kind(99), time.Second, time.Second)
	m.Refused("annotation")
	m.HookError("cpuset")
	m.RuntimeUpdate("done")
	m.HookServerCall("10-a.json", "done", 700*time.Microsecond)
	m.HookServerCall("10-a.json", "skipped", 0)
	m.ResourcePluginCall("cpu", "Allocate", "done", 400*time.Microsecond)
	m.ResourcePluginCall("cpu", "RemovePod", "skipped", 0)
	m.PluginCall("10-devices", "CreateContainer", "done", 300*time.Microsecond)
	m.PluginCall("10-devices", "CreateContainer", "failed", 2*time.Second)
	return m
}

func page(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestPage(t *testing.T) {
	got := page(t, sample())
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the page changed; if it should, run go test -update (-want +got):\n%s", d)
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(sample().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestTableIsThePage: the page has exactly the metrics of the table, with kind and help.
func TestTableIsThePage(t *testing.T) {
	got := page(t, sample())
	for _, r := range Families() {
		if !strings.Contains(got, "# HELP "+r.Name+" "+r.Help+"\n# TYPE "+r.Name+" "+r.Kind+"\n") {
			t.Errorf("%s is not on the page as the table has it", r.Name)
		}
	}
	if n := strings.Count(got, "# TYPE "); n != len(Families()) {
		t.Errorf("%d families on the page, %d in the table", n, len(Families()))
	}
	for _, bad := range []string{"pod=", "container=", "namespace="} {
		if strings.Contains(got, bad) {
			t.Errorf("the page has a label %s", bad)
		}
	}
}

func TestNothingYet(t *testing.T) {
	m := New(Build{}, KnownLabelValues{})
	m.AddStateMetrics(func() api.Summary { return api.Summary{} })
	m.AddProcessMetrics()
	for _, want := range []string{
		"trimtab_last_sync_timestamp_seconds 0\n", "trimtab_config_error 0\n", `trimtab_unapplied_values{reason="not yet"} 0`,
		`trimtab_events_total{kind="Synchronize"} 0`, "go_goroutines", "process_start_time_seconds",
	} {
		if !strings.Contains(page(t, m), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// BenchmarkEvent measures what counting adds to an event.
func BenchmarkEvent(b *testing.B) {
	m := sample()
	b.ReportAllocs()
	for b.Loop() {
		m.Event(lifecycle.CreateContainer, 180*time.Microsecond, 4*time.Microsecond)
	}
}
