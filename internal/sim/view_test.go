package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestLayOutTable(t *testing.T) {
	rows := []tableRow{
		{cells: []cell{{text: "a"}, {}, {text: "0-3,8-11", changed: true}}, remarks: []string{"for a reason that is longer than the line", "! odd"}},
		{cells: []cell{{text: "b"}, {}, {text: "0"}}},
	}
	var got strings.Builder
	for _, l := range layOutTable([]column{{"name", 10}, {"never", 10}, {"CPUs", 6}}, rows, 28, term.Ink{}).Lines {
		got.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	want := `name  CPUs
────  ──────
a     0-3,
      8-11*
  └ for a reason that is
    longer than the line
  └ ! odd
b     0
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

func TestWhy(t *testing.T) {
	reason := func(source, text string) lifecycle.Reason {
		return lifecycle.Reason{Hook: "h", Source: source, Text: text}
	}
	got := reasonLines(api.Container{Values: []api.Value{
		{Field: "cpuset.cpus", Applied: true, Why: reason("x/status", "assigned")},
		{Field: "cpu.quota", Applied: true, Why: reason("x/status", "not throttled")},
		{Field: "cpu.shares", Applied: true, Why: reason("x/spec", "request")},
		{Field: "memory.limit", Note: "the kernel refused it", Why: reason("x/spec", "request")},
	}})
	want := []string{
		"! memory.limit is not applied: the kernel refused it",
		"assigned, not throttled ← x/status", "request ← x/spec",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"by itself"}, reasonLines(api.Container{CPUGroupWhy: "by itself"})); d != "" {
		t.Error(d)
	}
}

func TestFormatMemory(t *testing.T) {
	for n, want := range map[int64]string{-1: "none", 1: "1 byte", 1 << 30: "1 GiB", 3 << 29: "1.5 GiB", 2 << 40: "2 TiB"} {
		if got := formatMemory(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFormatQuota(t *testing.T) {
	for want, s := range map[string]effective.State{
		"none": {Quota: effective.Unlimited, Period: 100000}, "4 CPU": {Quota: 400000, Period: 100000}, "0.25 CPU": {Quota: 12500, Period: 50000},
	} {
		if got := formatQuota(s); got != want {
			t.Errorf("%d of %d: %q, want %q", s.Quota, s.Period, got, want)
		}
	}
}

// TestPrintSummary: only a scenario that wants something, and gets it, ends with a tick.
func TestPrintSummary(t *testing.T) {
	cells := make([]cell, len(columns))
	cells[0].text = "d/p/c"
	problem := stepResult{step: &scenario.Step{Name: "a"}, containerRows: []tableRow{{cells: cells, remarks: []string{"why", "! odd"}}}}
	for want, test := range map[string]struct {
		steps        []stepResult
		wants, unmet int
	}{
		"✓ all as expected: 2 steps, 3 expectations, read back from the kernel's files and the OCI specs, in 5ms":   {nil, 3, 0},
		"✗ 1 not as expected: 2 steps, 3 expectations, read back from the kernel's files and the OCI specs, in 5ms": {nil, 3, 1},
		"· played: 2 steps; no step has an expectation (want), so nothing was compared; in 5ms":                     {nil, 0, 0},
		"! played: 2 steps, 1 problem; no step has an expectation (want), so nothing was compared; in 5ms":          {[]stepResult{problem, problem}, 0, 0},
	} {
		var out strings.Builder
		v := newView(&out, false, 80)
		for _, s := range test.steps {
			v.printStep(s)
		}
		out.Reset()
		v.printSummary(2, test.wants, test.unmet, 5*time.Millisecond)
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
