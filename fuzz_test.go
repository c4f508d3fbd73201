package trimtab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFuzzTargetsHaveAClock: every fuzz target measures the time for each input, so that slow parsing also
// fails it, not only a panic.
func TestFuzzTargetsHaveAClock(t *testing.T) {
	target := regexp.MustCompile(`(?ms)^func (Fuzz\w+)\(f \*testing\.F\) \{\n.*?^\}`)
	clocked := regexp.MustCompile(`defer clock\.Watch|clock\.Bound\(t, `)
	found := 0
	err := filepath.WalkDir("internal", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range target.FindAllSubmatch(text, -1) {
			if found++; !clocked.Match(m[0]) {
				t.Errorf("%s: %s has no clock: begin its function with defer clock.Watch(t, length)(), or run it with clock.Bound", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 20 {
		t.Errorf("%d fuzz targets, %v", found, err)
	}
}
