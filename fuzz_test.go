package trimtab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFuzzTargetsHaveAClock: every fuzz target measures each input, so that it fails of
// text that stalls its reader and not of a panic alone.
func TestFuzzTargetsHaveAClock(t *testing.T) {
	target := regexp.MustCompile(`(?ms)^func (Fuzz\w+)\(f \*testing\.F\) \{\n.*?^\}`)
	found := 0
	err := filepath.WalkDir("internal", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range target.FindAllSubmatch(text, -1) {
			if found++; !strings.Contains(string(m[0]), "defer clock.Watch") {
				t.Errorf("%s: %s has no clock: begin its function with defer clock.Watch(t, length)()", path, m[1])
			}
		}
		return err
	})
	if err != nil || found < 20 {
		t.Errorf("%d fuzz targets, %v", found, err)
	}
}
