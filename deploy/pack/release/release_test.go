package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/deploy/pack/program"
	"github.com/trimtab/trimtab/deploy/pack/release"
	"github.com/trimtab/trimtab/deploy/pack/test/render"
	"github.com/trimtab/trimtab/deploy/pack/test/tree"
)

// TestRelease makes a release from a tagged tree, verifies every checksum, and uses archive and chart.
func TestRelease(t *testing.T) {
	dir := tree.Copy(t, tree.File{Name: "CHANGELOG.md", Text: "# Changelog\n\n## [1.2.3] - 2026-01-02\n"})
	t.Log(strings.TrimSpace(tree.Run(t, dir, "make", "release")))
	dist := filepath.Join(dir, "dist", tree.Version)
	tree.Run(t, dist, "sha256sum", "--check", "--strict", release.SumsFile)
	found, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name())
	}
	want := []string{
		release.SumsFile, "kubectl-trimtab_1.2.3_darwin_amd64.tar.gz", "kubectl-trimtab_1.2.3_darwin_arm64.tar.gz",
		"kubectl-trimtab_1.2.3_linux_amd64.tar.gz", "kubectl-trimtab_1.2.3_linux_arm64.tar.gz", "trimtab-chart-1.2.3.tgz", "trimtab-image.tar", "trimtab.yaml", "trimtab_1.2.3_amd64.deb",
		"trimtab_1.2.3_arm64.deb", "trimtab_1.2.3_linux_amd64.tar.gz", "trimtab_1.2.3_linux_arm64.tar.gz",
	}
	if !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}

	name := "trimtab_1.2.3_linux_" + runtime.GOARCH
	tree.Run(t, dist, "tar", "-xf", name+".tar.gz")
	out, err := exec.Command(filepath.Join(dist, name, "trimtab"), "version").Output()
	if err != nil || !strings.Contains(string(out), tree.Version) {
		t.Errorf("trimtab version: %q, %v", out, err)
	}
	for _, file := range []string{"systemd/trimtab-nri.service", "trimtab-oci"} {
		if _, err := os.Stat(filepath.Join(dist, name, file)); err != nil {
			t.Error(err)
		}
	}

	plugin := "kubectl-" + name
	tree.Run(t, dist, "tar", "-xf", plugin+".tar.gz")
	out, err = exec.Command(filepath.Join(dist, plugin, "kubectl-trimtab"), "version").Output()
	if err != nil || !strings.Contains(string(out), tree.Version) {
		t.Errorf("kubectl-trimtab version: %q, %v", out, err)
	}
	for _, page := range []string{filepath.Join(name, "man/trimtab-doctor.1"), filepath.Join(plugin, "man/kubectl-trimtab-doctor.1")} {
		if _, err := os.Stat(filepath.Join(dist, page)); err != nil {
			t.Error(err)
		}
	}

	manifest, err := os.ReadFile(filepath.Join(dist, "trimtab.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := render.Helm(t, "template", "trimtab", filepath.Join(dist, "trimtab-chart-1.2.3.tgz"), "--namespace", "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, `image: "ghcr.io/trimtab/trimtab:v1.2.3"`) || !strings.HasSuffix(string(manifest), text) {
		t.Errorf("the chart is not of this version, or another than the manifest:\n%s", text)
	}
}

// TestCheck: programs without a tag, with changes, or without a changelog heading cannot be released.
func TestCheck(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("# Changelog\n\n## [1.2.3] - 2026-01-02\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for version, ok := range map[string]bool{
		"v1.2.3": true, "v1.2.4": false, "devel": false, "v1.2.3+dirty": false,
		"v0.0.0-20261123180343-357d77081855": false, "v1.2.3-0.20261123180343-357d77081855": false,
	} {
		if err := release.Check(root, program.Program{Version: version}); (err == nil) != ok {
			t.Errorf("%s: %v", version, err)
		}
	}
	if err := release.Check(root, program.Program{Version: "v1.2.3", Modified: true}); err == nil {
		t.Error("want an error for a changed tree")
	}
}
