package release

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/trimtab/trimtab/deploy/pack/files"
	"github.com/trimtab/trimtab/deploy/pack/program"
)

// plugin is the file name of the kubectl plugin.
const plugin = "kubectl-trimtab"

// pluginArchives packs the kubectl plugin for each system with a directory OS-ARCH in dir: program, completion, man
// pages and roles for users. It must have the same version as the agent's program.
func pluginArchives(root, out, dir string, p program.Program) error {
	found, err := filepath.Glob(filepath.Join(dir, "*-*", plugin))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no OS-ARCH/%s below %q: build the plugin first", plugin, dir)
	}
	for _, path := range found {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		if info.Main.Version != p.Version {
			return fmt.Errorf("%s has version %s, but the agent's program has %s: build both from one commit", path, info.Main.Version, p.Version)
		}
		system := strings.ReplaceAll(filepath.Base(filepath.Dir(path)), "-", "_")
		if err := pluginArchive(root, out, path, plugin+"_"+withoutV(p)+"_"+system, p); err != nil {
			return err
		}
	}
	return nil
}

func pluginArchive(root, out, path, name string, p program.Program) error {
	type source struct {
		from, to string
		mode     int64
	}
	var all []files.File
	sources := []source{
		{path, plugin, 0o755},
		{filepath.Join(root, "LICENSE"), "LICENSE", 0o644},
		{filepath.Join(root, "deploy/kubectl/kubectl_complete-trimtab"), "kubectl_complete-trimtab", 0o755},
		{filepath.Join(root, "deploy/kubectl/roles.yaml"), "roles.yaml", 0o644},
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/man/kubectl/*.1"))
	if err == nil && len(pages) == 0 {
		err = errors.New("no man pages in docs/man/kubectl")
	}
	if err != nil {
		return err
	}
	for _, page := range pages {
		sources = append(sources, source{page, "man/" + filepath.Base(page), 0o644})
	}
	for _, f := range sources {
		data, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		all = append(all, files.File{Path: name + "/" + f.to, Mode: f.mode, Data: data})
	}
	packed, err := files.TarGz(p.Time, all)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".tar.gz"), packed, 0o644)
}
