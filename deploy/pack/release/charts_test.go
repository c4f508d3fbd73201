package release

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/program"
)

// TestManifestHasImage: the manifest has the release's image, with or without quotes around the chart's appVersion.
func TestManifestHasImage(t *testing.T) {
	for _, was := range []string{"v0.1.0", `"v0.1.0"`, "0.1.0", `"0.1.0"`} {
		root, out := t.TempDir(), t.TempDir()
		bare := was
		if was[0] == '"' {
			bare = was[1 : len(was)-1]
		}
		for name, text := range map[string]string{
			chart + "/Chart.yaml": "apiVersion: v2\nversion: 0.1.0\nappVersion: " + was + "\n",
			manifest:              "image: \"example.org/trimtab:" + bare + "\"\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeChart(root, out, program.Program{Version: "v1.2.3"}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, "trimtab.yaml"))
		if want := "image: \"example.org/trimtab:v1.2.3\"\n"; err != nil || string(text) != want {
			t.Errorf("appVersion %s: %q, %v", was, text, err)
		}
	}
}
