package script

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// recordings reads the recordings of real kernels. TestKernelScript of test/vm writes them with -update.
func recordings(t *testing.T) []Recording {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d recordings of kernels, want 3 or more: %v", len(files), err)
	}
	var out []Recording
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ParseRecording(data)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out = append(out, r)
	}
	return out
}

// TestFakeMatchesKernels compares the fake with every recorded kernel.
func TestFakeMatchesKernels(t *testing.T) {
	used := map[int]bool{}
	for _, r := range recordings(t) {
		t.Run(r.Kernel+" "+r.Version, func(t *testing.T) {
			fake, m, err := FakeOf(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Run(fake, m)
			if err != nil {
				t.Fatal(err)
			}
			all := Compare(r.Cases, got)
			wrong, rows := Explain(r.Kernel, all)
			for n := range rows {
				used[n] = true
			}
			t.Logf("%d intended differences:\n%s", len(all)-len(wrong), Table("kernel", "fake", explained(all)))
			if len(wrong) > 0 {
				t.Errorf("%d differences between the fake and this kernel:\n%s", len(wrong), Table("kernel", "fake", wrong))
			}
		})
	}
	for n, k := range knownDifferences {
		if !used[n] {
			t.Errorf("a known difference that no recording shows any more: %+v", k)
		}
	}
}

func explained(all []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return d.Reason == "" })
}

var _ Kernel = (*kernel.Cgroups)(nil)
