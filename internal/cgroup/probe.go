package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// reference is a file every cgroup of a controller has, by controller: where it
// is, files that are missing are missing because the kernel does not have them.
var reference = map[string]lifecycle.Field{
	"cpu": lifecycle.CPUQuota, "cpuset": lifecycle.CPUSetCPUs, "memory": lifecycle.MemoryLimit,
}

// Probe tells whether the kernel has a controller ("cpu") or a file, by its
// version 2 name ("cpu.idle"). It only reads. A file can be looked for only in
// a cgroup that has its controller, so on a node where nothing was started yet
// the answer may be that nobody can tell.
func (t *Tree) Probe(feature string) lifecycle.Finding {
	controller, _, isFile := strings.Cut(feature, ".")
	if f := t.probeController(controller); f.Support != lifecycle.Supported || !isFile {
		return f
	}
	s, err := Find(lifecycle.Unified, feature)
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	file, err := s.file(t.Version)
	if errors.Is(err, errors.ErrUnsupported) {
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: err.Error()}
	}
	return t.probeFile(file)
}

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
	text, err := t.read("cgroup.controllers")
	switch {
	case err != nil:
		return lifecycle.Finding{Why: err.Error()}
	case !slices.Contains(strings.Fields(text), controller):
		return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel offers no controller " + controller}
	}
	return lifecycle.Finding{Support: lifecycle.Supported}
}

// probeFile looks for a file in the cgroups below the root, which has not all
// files itself; those of pods first, as the others may not have the controller.
func (t *Tree) probeFile(file File) lifecycle.Finding {
	names, err := t.Children(".", file.Controller)
	if err != nil {
		return lifecycle.Finding{Why: err.Error()}
	}
	slices.SortStableFunc(names, func(a, b string) int { return rankPods(a) - rankPods(b) })
	for _, dir := range names {
		_, err := t.FS.ReadFile(t.path(file.Controller, dir, file.Name))
		switch {
		case err == nil:
			return lifecycle.Finding{Support: lifecycle.Supported}
		case !errors.Is(err, fs.ErrNotExist):
			return lifecycle.Finding{Why: (&Error{Op: "read", Path: file.Name, Err: err}).Error()}
		case t.hasController(dir, file.Controller):
			return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "the kernel has no " + file.Name}
		}
	}
	// What the root has the kernel has; what it lacks may be below it.
	if _, err := t.FS.ReadFile(t.path(file.Controller, ".", file.Name)); err == nil {
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	return lifecycle.Finding{Why: fmt.Sprintf("no cgroup with the controller %s exists yet", file.Controller)}
}

func rankPods(dir string) int {
	if strings.HasPrefix(dir, "kubepods") {
		return 0
	}
	return 1
}

// hasController reports whether the files of a controller are in dir.
func (t *Tree) hasController(dir, controller string) bool {
	field, known := reference[controller]
	if !known {
		return false
	}
	_, err := t.Read(dir, field, "")
	return err == nil
}
