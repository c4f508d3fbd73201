package chart_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/chart"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

var update = flag.Bool("update", false, "write the generated files")

// The marks around the needs in docs/install.md.
const (
	page  = "docs/install.md"
	begin = "<!-- Generated from deploy/charts/trimtab/needs.yaml by make chart; do not edit. -->\n"
	end   = "<!-- End of what is generated. -->\n"
)

// TestGenerated: the schema of the values, the manifest and the page's lists match the chart. `make chart` writes them.
func TestGenerated(t *testing.T) {
	root := tree.Root(t)
	schema, err := chart.Schema(root)
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, filepath.Join(root, chart.Dir, "values.schema.json"), string(schema))
	needs, err := chart.ReadNeeds(root)
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatalf("%s lacks the marks around the lists", page)
	}
	fresh(t, filepath.Join(root, page), head+begin+"\n"+needs.Table()+"\n"+end+tail)
	fresh(t, filepath.Join(root, "deploy/trimtab.yaml"), manifest(t, root))
}

// manifest is the chart with its defaults, for users without Helm.
func manifest(t *testing.T, root string) string {
	t.Helper()
	const head = "# Trimtab on every node, in the namespace kube-system: kubectl apply -f trimtab.yaml\n" +
		"# Rendered from deploy/charts/trimtab by make chart; do not edit.\n"
	text, err := render.Helm(t, "template", "trimtab", filepath.Join(root, chart.Dir), "--namespace", "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	return head + text
}

func fresh(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): run make chart", file, err)
	}
}

// TestPage: the page keeps the limits for pages.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(tree.Root(t), page))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) > 250 {
		t.Errorf("%s has %d lines, at most 250", page, len(lines))
	}
	for i, line := range lines {
		if len([]rune(line)) > 120 {
			t.Errorf("%s:%d has more than 120 columns", page, i+1)
		}
	}
}
