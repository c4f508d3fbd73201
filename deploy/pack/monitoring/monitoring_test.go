package monitoring_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/monitoring"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/metrics"
)

var update = flag.Bool("update", false, "write the generated files")

// TestGenerated: the files of deploy/monitoring match the chart and the table of panels. `make chart` writes them.
func TestGenerated(t *testing.T) {
	root := tree.Root(t)
	board, err := monitoring.Dashboard()
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, "dashboard.json", string(board))
	fresh(t, "alerts.yaml", "# Made from deploy/charts/trimtab/alerts.yaml by make chart; do not edit.\n"+read(t, filepath.Join(chart.Dir, "alerts.yaml")))
	rule, err := render.Helm(t, "template", "trimtab", filepath.Join(root, chart.Dir), "--namespace", "monitoring",
		"--set", "monitoring.prometheusRule.enabled=true", "--show-only", "templates/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, "prometheusrule.yaml", "# For the Prometheus operator. Rendered from deploy/charts/trimtab by make chart; do not edit.\n"+rule)
}

func fresh(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join(tree.Root(t), "deploy/monitoring", name)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): run make chart", file, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tree.Root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// rule is an alert rule of Prometheus.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(chart.Dir, "alerts.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 10 {
		t.Fatalf("%d groups", len(file.Groups))
	}
	return file.Groups[0].Rules
}

// queries returns all queries of the dashboard and the alerts, by panel or alert.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, row := range monitoring.Panels() {
		for _, p := range row.Panels {
			for _, q := range p.Queries {
				all["panel "+p.Title+" "+q.Legend] = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(q.Expr)
			}
		}
	}
	for _, r := range alerts(t) {
		all["alert "+r.Alert] = r.Expr
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:trimtab|process)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(=~|!=|!~|=)\s*"([^"]*)"`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// TestQueries: every query uses existing metrics of the agent, existing labels, and possible values of these.
func TestQueries(t *testing.T) {
	rows := map[string]metrics.Family{}
	for _, r := range metrics.Families() {
		rows[r.Name] = r
	}
	all := queries(t)
	if len(all) < 30 {
		t.Fatalf("%d queries", len(all))
	}
	for who, expr := range all {
		t.Run(who, func(t *testing.T) { checkQuery(t, expr, rows) })
	}
}

// added has the labels that Prometheus adds, and those of histogram buckets.
var added = []string{"instance", "job", "le"}

func checkQuery(t *testing.T, expr string, rows map[string]metrics.Family) {
	t.Helper()
	labels := slices.Clone(added)
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		t.Fatalf("%s names no metric of the agent", expr)
	}
	for _, m := range found {
		if strings.HasPrefix(m[1], "process_") {
			continue // metrics of the client library
		}
		row, known := rows[strings.TrimSuffix(m[1], "_bucket")]
		if !known {
			row, known = rows[m[1]]
		}
		if !known {
			t.Fatalf("%s: there is no metric %s", expr, m[1])
		}
		labels = append(labels, row.LabelNames...)
		for _, want := range matcher.FindAllStringSubmatch(m[2], -1) {
			if slices.Contains(added, want[1]) {
				continue
			}
			if !slices.Contains(row.LabelNames, want[1]) {
				t.Errorf("%s: %s has no label %s", expr, m[1], want[1])
			}
			for value := range strings.SplitSeq(want[3], "|") {
				if !slices.Contains(valuesOf(row), value) {
					t.Errorf("%s: %s of %s is never %q", expr, want[1], m[1], value)
				}
			}
		}
	}
	for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			if !slices.Contains(labels, strings.TrimSpace(label)) {
				t.Errorf("%s: no metric of it has the label %s", expr, label)
			}
		}
	}
}

// valuesOf has the possible values of a metric's labels.
func valuesOf(r metrics.Family) []string {
	var values []string
	for _, m := range quoted.FindAllStringSubmatch(r.LabelValues, -1) {
		values = append(values, m[1])
	}
	if slices.Contains(r.LabelNames, "kind") { // events
		for k := range lifecycle.Inform + 1 {
			values = append(values, k.String())
		}
	}
	return values
}

// TestPanels: every metric of the agent's state is on the dashboard or in an alert, except for auxiliary ones.
func TestPanels(t *testing.T) {
	var text strings.Builder
	for _, expr := range queries(t) {
		text.WriteString(expr + "\n")
	}
	aside := []string{
		"trimtab_connection_state", "trimtab_last_sync_timestamp_seconds", "trimtab_pods", "trimtab_config_generation", "trimtab_attachment_ignored_events_total",
		"trimtab_config_layer_version", "trimtab_hookserver_call_duration_seconds", "trimtab_resourceplugin_call_duration_seconds", "trimtab_cluster_last_contact_timestamp_seconds",
	}
	for _, r := range metrics.Families() {
		if !strings.Contains(text.String(), r.Name) && !slices.Contains(aside, r.Name) {
			t.Errorf("%s is on no panel and in no alert", r.Name)
		}
	}
}

// TestPromtool: promtool accepts all files, and the alerts fire when they should and not before.
func TestPromtool(t *testing.T) {
	program := filepath.Join(render.Tool(t, "promtool"), "promtool")
	type record struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var records []record
	for _, expr := range queries(t) {
		records = append(records, record{"checked:query", expr})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": records}}})
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(all, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=none", all},
		{"check", "rules", filepath.Join(tree.Root(t), "deploy/monitoring/alerts.yaml")},
		{"test", "rules", "testdata/alerts.yaml"},
	} {
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestRunbooks: every alert links to its section of docs/monitoring.md, and has a test in testdata.
func TestRunbooks(t *testing.T) {
	page, tried := read(t, "docs/monitoring.md"), read(t, "deploy/pack/monitoring/testdata/alerts.yaml")
	for _, r := range alerts(t) {
		if !strings.Contains(page, "\n### "+r.Alert+"\n") || !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/monitoring.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: no heading in docs/monitoring.md, or no link to it", r.Alert)
		}
		if !strings.Contains(tried, "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no test in testdata/alerts.yaml", r.Alert)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
	}
}
