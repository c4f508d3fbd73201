package status

import (
	"bytes"
	"strings"
	"testing"
)

// TestStatusWide: -o wide has limits in the kernel's units, and the columns that the narrow table omits.
func TestStatusWide(t *testing.T) {
	var b bytes.Buffer
	if err := RenderStatus(&b, sample(), Options{Now: noon, Wide: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"25000 100000  -1 ", "-1 100000     17179869184", "Guaranteed", "c3", "assigned by the scheduler"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q:\n%s", want, b.String())
		}
	}
}

// TestStatusLabels shows only the containers of pods with certain labels.
func TestStatusLabels(t *testing.T) {
	var b bytes.Buffer
	o := Options{Now: noon, Matches: func(labels map[string]string) bool { return labels["app"] == "redis" }}
	if err := RenderStatus(&b, sample(), o); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, "2 of 3 containers are shown") || strings.Contains(s, "batch/job-1") || !strings.Contains(s, "exporter") {
		t.Error(s)
	}
}

// TestLargeNode: a node with too many CPUs for drawn boxes has a line for each NUMA node.
func TestLargeNode(t *testing.T) {
	n := sample()
	n.CPUs.Online, n.CPUs.Nodes[0].CPUs, n.CPUs.Nodes[0].Cores = "0-255", "0-255", nil
	var b bytes.Buffer
	if err := RenderStatus(&b, n, Options{Now: noon}); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.Contains(s, "╭") || !strings.Contains(s, "  node 0   0-255  ##··AAAA") || !strings.Contains(s, "A db/redis-0 alone: 4-7") {
		t.Error(s)
	}
}
