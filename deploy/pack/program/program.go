// Package program reads the build information of a trimtab program: the Go toolchain records version, commit and
// modules in every program. So image, SBOM and packages have the same version that `trimtab version` prints.
package program

import (
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// Program is a built trimtab.
type Program struct {
	Path     string
	Arch     string           // GOARCH: amd64 or arm64
	Version  string           // the git tag, "v1.2.3"; or Go's pseudo version of the commit; or "devel" without git
	Revision string           // the commit; empty without git
	Modified bool             // the git tree had uncommitted changes
	Time     time.Time        // the time of the commit; 1970 without git
	Info     *debug.BuildInfo // what go build has stored in the program
}

// Read reads the build information of the program at path. The program must be static and for Linux, since the
// container image has no dynamic loader.
func Read(path string) (Program, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Program{}, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["GOOS"] != "linux" || settings["CGO_ENABLED"] != "0" {
		return Program{}, fmt.Errorf("%s is not a static program for Linux: it was built with GOOS=%q and CGO_ENABLED=%q",
			path, settings["GOOS"], settings["CGO_ENABLED"])
	}
	p := Program{
		Path: path, Arch: settings["GOARCH"], Version: "devel", Revision: settings["vcs.revision"],
		Modified: settings["vcs.modified"] == "true", Time: time.Unix(0, 0).UTC(), Info: info,
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		p.Version = v
	}
	if text := settings["vcs.time"]; text != "" {
		if p.Time, err = time.Parse(time.RFC3339, text); err != nil {
			return Program{}, fmt.Errorf("%s: %w", path, err)
		}
		p.Time = p.Time.UTC()
	}
	return p, nil
}

// WrapperName is the file name of the OCI runtime wrapper, which is built beside the program.
const WrapperName = "trimtab-oci"

// Wrapper returns the path of the OCI runtime wrapper beside the program. The wrapper must have the program's version,
// commit and architecture.
func (p Program) Wrapper() (string, error) {
	path := filepath.Join(filepath.Dir(p.Path), WrapperName)
	w, err := Read(path)
	if err != nil {
		return "", err
	}
	if w.Arch != p.Arch || w.Version != p.Version || w.Revision != p.Revision {
		return "", fmt.Errorf("the programs were not built together: %s has version %s for %s, commit %q; %s has version %s for %s, commit %q",
			path, w.Version, w.Arch, w.Revision, p.Path, p.Version, p.Arch, p.Revision)
	}
	return path, nil
}

// Tag returns the version as an image tag, which must not contain "+".
func (p Program) Tag() string { return strings.ReplaceAll(p.Version, "+", "-") }

// ReadAll reads the programs of one release, which must have one version and different architectures.
func ReadAll(paths []string) ([]Program, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("name at least one program")
	}
	seen := map[string]bool{}
	programs := make([]Program, 0, len(paths))
	for _, path := range paths {
		p, err := Read(path)
		if err != nil {
			return nil, err
		}
		if seen[p.Arch] {
			return nil, fmt.Errorf("%s is a second program for %s: name one program for each architecture", path, p.Arch)
		}
		seen[p.Arch] = true
		if first := append(programs, p)[0]; p.Version != first.Version || p.Revision != first.Revision {
			return nil, fmt.Errorf("the programs were not built together: %s has version %s, commit %q; %s has version %s, commit %q",
				first.Path, first.Version, first.Revision, path, p.Version, p.Revision)
		}
		programs = append(programs, p)
	}
	return programs, nil
}
