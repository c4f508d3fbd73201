// Package release makes what a release consists of beside image and packages: archives of the programs, the chart, the
// manifest, and checksums of everything. All is named after the git tag that the programs were built from.
package release

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/deploy/pack/files"
	"github.com/trimtab/trimtab/deploy/pack/program"
)

// Sums is the file of the checksums, as `sha256sum --check` reads it.
const Sums = "SHA256SUMS"

// Where things are in the repository.
const (
	chart    = "deploy/charts/trimtab"
	manifest = "deploy/trimtab.yaml"
)

// tagged is a version that is a git tag's and nothing else.
var tagged = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$`)

// Check says why programs are no release: they have to be built from a tag, without changes, that CHANGELOG.md names.
func Check(root string, p program.Program) error {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !tagged.MatchString(p.Version) || p.Modified {
		return fmt.Errorf("%s is no release: tag the commit as v1.2.3, and change nothing", p.Version)
	}
	if heading := "## [" + bare(p) + "]"; !strings.Contains(string(changelog), "\n"+heading) {
		return fmt.Errorf("CHANGELOG.md has no heading %q", heading)
	}
	return nil
}

// bare is the version without its "v".
func bare(p program.Program) string { return strings.TrimPrefix(p.Version, "v") }

// Make writes archives, chart and manifest into directory out, and then the checksums of all files there. Directory
// plugins has kubectl-trimtab for each system.
func Make(root, out, plugins string, programs []program.Program) error {
	for _, p := range programs {
		if err := archive(root, out, p); err != nil {
			return err
		}
	}
	if err := pluginArchives(root, out, plugins, programs[0]); err != nil {
		return err
	}
	if err := charts(root, out, programs[0]); err != nil {
		return err
	}
	return sums(out)
}

// archive is for nodes without a package manager: the program, its units and man pages.
func archive(root, out string, p program.Program) error {
	name := "trimtab_" + bare(p) + "_linux_" + p.Arch
	data, err := os.ReadFile(p.Path)
	if err != nil {
		return err
	}
	all := []files.File{{Path: name + "/trimtab", Mode: 0o755, Data: data}}
	for _, pattern := range []string{"LICENSE", "CHANGELOG.md", "deploy/systemd/*", "docs/man/*.1"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range found {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			to := filepath.Base(filepath.Dir(pattern))
			all = append(all, files.File{Path: filepath.Join(name, to, filepath.Base(file)), Mode: 0o644, Data: data})
		}
	}
	packed, err := files.Compressed(p.Time, all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".tar.gz"), packed, 0o644)
}

// charts are chart and manifest with the version of this release in place of the one they have in the repository.
func charts(root, out string, p program.Program) error {
	var all []files.File
	old := ""
	tree := os.DirFS(filepath.Join(root, chart))
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			old, data = versioned(data, bare(p))
		}
		all = append(all, files.File{Path: "trimtab/" + name, Mode: 0o644, Data: data})
		return nil
	})
	if err != nil {
		return err
	}
	if old == "" {
		return fmt.Errorf("%s/Chart.yaml has no appVersion", chart)
	}
	packed, err := files.Compressed(p.Time, all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "trimtab-chart-"+bare(p)+".tgz"), packed, 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, manifest))
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(old), []byte(p.Version))
	return os.WriteFile(filepath.Join(out, "trimtab.yaml"), text, 0o644)
}

var (
	version    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion = regexp.MustCompile(`(?m)^appVersion: "?([^"\n]*)"?$`)
)

// versioned is a Chart.yaml with another version, and the appVersion it had: the tag of
// the image that the manifest names.
func versioned(data []byte, to string) (old string, with []byte) {
	if found := appVersion.FindSubmatch(data); found != nil {
		old = string(found[1])
	}
	data = version.ReplaceAll(data, []byte("version: "+to))
	return old, appVersion.ReplaceAll(data, []byte("appVersion: v"+to))
}

// sums writes the checksums of all files in out but their own.
func sums(out string) error {
	all, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var lines []string
	for _, f := range all {
		if f.IsDir() || f.Name() == Sums {
			continue
		}
		data, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), f.Name()))
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(out, Sums), []byte(strings.Join(lines, "")), 0o644)
}
