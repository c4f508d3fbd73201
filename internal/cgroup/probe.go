package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Probe reports whether the kernel has a controller, such as "cpu", or a file, such as "cpu.idle". The feature is the
// controller's name, or the file's name in cgroup version 2. Probe writes nothing. A controller's files are only in
// cgroups that have the controller. So the result can be "unknown" on a node where no pod has started yet.
func (t *Tree) Probe(feature string) lifecycle.Finding {
	file, err := FeatureFile(feature, t.Version)
	if errors.Is(err, errors.ErrUnsupported) {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: err.Error()}
	}
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	if f := t.probeController(file.Controller); f.Support != lifecycle.Supported || file.Name == "" {
		return f
	}
	return t.probeFile(file)
}

// FeatureFile returns a feature's file in a cgroup version. If the feature is a controller, the File has only the
// controller's name.
func FeatureFile(feature string, v Version) (File, error) {
	controller, _, isFile := strings.Cut(feature, ".")
	if !isFile {
		return File{Controller: controller}, nil
	}
	s, err := FindSetting(lifecycle.Unified, feature)
	if feature == "io.max" {
		s, err = FindSetting(lifecycle.IOLimit, sampleDiskLimit)
	}
	if err != nil {
		return File{}, err
	}
	return s.file(v)
}

// sampleDiskLimit is the key of any disk's limit. The limits of all disks are in the same file, so one key is enough to
// find the file.
const sampleDiskLimit = "0:0 rbps"

// probeController reports whether the kernel has a controller.
func (t *Tree) probeController(controller string) lifecycle.Finding {
	if t.Version == V1 {
		switch _, err := t.FS.List(controller); {
		case errors.Is(err, fs.ErrNotExist):
			return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the controller " + controller + " is not mounted"}
		case err != nil:
			return lifecycle.Finding{Why: err.Error()}
		}
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	switch has, err := t.hasController(".", controller); {
	case err != nil:
		return lifecycle.Finding{Why: err.Error()}
	case !has:
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel offers no controller " + controller}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}

// probeFile reports whether the kernel has a file. It looks in the cgroups below the root, because
// the root lacks some files. It searches the cgroups of pods first, since other cgroups may not
// have the controller.
func (t *Tree) probeFile(file File) lifecycle.Finding {
	names, err := t.Children(".", file.Controller)
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	slices.SortStableFunc(names, func(a, b string) int { return podsFirst(a) - podsFirst(b) })
	for _, dir := range names {
		_, err := t.FS.ReadFile(t.path(file.Controller, dir, file.Name))
		has, _ := t.hasController(dir, file.Controller) // an error means that dir was removed
		switch {
		case err == nil:
			return lifecycle.Finding{Support: lifecycle.Supported}
		case !errors.Is(err, fs.ErrNotExist):
			return lifecycle.Finding{Why: (&Error{Op: "read", Path: file.Name, Err: err}).Error()}
		case has:
			return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel has no " + file.Name}
		}
	}
	// If the root has the file, the kernel supports the file. If the root lacks the file, cgroups below the root can
	// still have it.
	if _, err := t.FS.ReadFile(t.path(file.Controller, ".", file.Name)); err == nil {
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	return lifecycle.Finding{Why: fmt.Sprintf("no cgroup with the controller %s exists yet", file.Controller)}
}

// podsFirst returns a rank that sorts the cgroups of pods before other cgroups.
func podsFirst(dir string) int {
	if strings.HasPrefix(dir, "kubepods") {
		return 0
	}
	return 1
}

// hasController reports whether the files of a controller are in dir.
func (t *Tree) hasController(dir, controller string) (bool, error) {
	if t.Version == V1 {
		return t.Exists(dir, controller), nil
	}
	text, err := t.read(t.path("", dir, "cgroup.controllers"))
	return slices.Contains(strings.Fields(text), controller), err
}
