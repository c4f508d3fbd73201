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

// pluginName is the file name of the kubectl plugin.
const pluginName = "kubectl-trimtab"

// writePluginArchives packs the kubectl plugin for each system that has a directory OS-ARCH in dir. It writes the
// archives to directory out. The plugin must have the same version as the agent's program p.
func writePluginArchives(root, out, dir string, p program.Program) error {
	found, err := filepath.Glob(filepath.Join(dir, "*-*", pluginName))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("there is no OS-ARCH/%s below %q: build the plugin first", pluginName, dir)
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
		if err := writePluginArchive(root, out, path, pluginName+"_"+withoutV(p)+"_"+system, p); err != nil {
			return err
		}
	}
	return nil
}

// writePluginArchive packs the plugin at path with its licence, completion, man pages and roles for users, as the file
// name.tar.gz in directory out.
func writePluginArchive(root, out, path, name string, p program.Program) error {
	type source struct {
		from, to string
		mode     int64
	}
	var all []files.File
	sources := []source{
		{path, pluginName, 0o755},
		{filepath.Join(root, "LICENSE"), "LICENSE", 0o644},
		{filepath.Join(root, "deploy/kubectl/kubectl_complete-trimtab"), "kubectl_complete-trimtab", 0o755},
		{filepath.Join(root, "deploy/kubectl/roles.yaml"), "roles.yaml", 0o644},
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/man/kubectl/*.1"))
	if err == nil && len(pages) == 0 {
		err = errors.New("docs/man/kubectl has no man pages of the kubectl plugin")
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
