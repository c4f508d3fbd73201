// Package release makes the files of a release other than the container image and the Debian packages: archives of the
// programs, the Helm chart, the manifest, and the checksums of all files of the release. The names of archives and
// chart contain the programs' version.
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

// SumsFile is the name of the checksum file for `sha256sum --check`.
const SumsFile = "SHA256SUMS"

// Paths in the repository.
const (
	chart    = "deploy/charts/trimtab"
	manifest = "deploy/trimtab.yaml"
)

// tagPattern matches the version of a program that was built exactly at a git tag, such as v1.2.3 or v1.2.3-rc.1.
var tagPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$`)

// Check returns an error if program p cannot be released. It must be built from an unchanged git tree at a tag, and
// CHANGELOG.md must have a heading for the version of the tag.
func Check(root string, p program.Program) error {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !tagPattern.MatchString(p.Version) || p.Modified {
		return fmt.Errorf("version %s cannot be released: build the programs from a commit with a tag such as v1.2.3, without changed files", p.Version)
	}
	if heading := "## [" + withoutV(p) + "]"; !strings.Contains(string(changelog), "\n"+heading) {
		return fmt.Errorf("CHANGELOG.md has no heading %q", heading)
	}
	return nil
}

// withoutV returns the version without its "v".
func withoutV(p program.Program) string { return strings.TrimPrefix(p.Version, "v") }

// Make writes archives, chart and manifest into directory out, and then the checksums of all files in out. Directory
// plugins has the kubectl plugin for each system, as OS-ARCH/kubectl-trimtab.
func Make(root, out, plugins string, programs []program.Program) error {
	for _, p := range programs {
		if err := writeArchive(root, out, p); err != nil {
			return err
		}
	}
	if err := writePluginArchives(root, out, plugins, programs[0]); err != nil {
		return err
	}
	if err := writeChart(root, out, programs[0]); err != nil {
		return err
	}
	return writeSums(out)
}

// writeArchive packs the files for nodes without a package manager: the program, the OCI runtime wrapper, systemd units
// and man pages.
func writeArchive(root, out string, p program.Program) error {
	name := "trimtab_" + withoutV(p) + "_linux_" + p.Arch
	wrapper, err := p.Wrapper()
	if err != nil {
		return err
	}
	var all []files.File
	for _, from := range []string{p.Path, wrapper} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		all = append(all, files.File{Path: name + "/" + filepath.Base(from), Mode: 0o755, Data: data})
	}
	for _, pattern := range []string{"LICENSE", "CHANGELOG.md", "deploy/systemd/*", "docs/man/*.[15]"} {
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
	packed, err := files.TarGz(p.Time, all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".tar.gz"), packed, 0o644)
}

// writeChart writes the Helm chart and the manifest to directory out, both with the version of program p.
func writeChart(root, out string, p program.Program) error {
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
			old, data = withVersion(data, withoutV(p))
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
	packed, err := files.TarGz(p.Time, all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "trimtab-chart-"+withoutV(p)+".tgz"), packed, 0o644); err != nil {
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
	// versionLine and appVersionLine match the lines of Chart.yaml with the version and the appVersion.
	versionLine    = regexp.MustCompile(`(?m)^version: .*$`)
	appVersionLine = regexp.MustCompile(`(?m)^appVersion: "?([^"\n]*)"?$`)
)

// withVersion returns a Chart.yaml with the given version and appVersion. It also returns the old appVersion, because
// the manifest has the old appVersion as image tag.
func withVersion(data []byte, to string) (old string, with []byte) {
	if found := appVersionLine.FindSubmatch(data); found != nil {
		old = string(found[1])
	}
	data = versionLine.ReplaceAll(data, []byte("version: "+to))
	return old, appVersionLine.ReplaceAll(data, []byte("appVersion: v"+to))
}

// writeSums writes the checksums of all files in out, except the checksum file.
func writeSums(out string) error {
	all, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var lines []string
	for _, f := range all {
		if f.IsDir() || f.Name() == SumsFile {
			continue
		}
		data, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), f.Name()))
	}
	slices.Sort(lines)
	return os.WriteFile(filepath.Join(out, SumsFile), []byte(strings.Join(lines, "")), 0o644)
}
