package sim

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// rdtGroup returns the resctrl group of all threads of a cgroup: "" for the root group, "several" for different groups.
// The name of a monitoring group follows after a slash.
func (r *Runtime) rdtGroup(dir string) string {
	if r.o.Resctrl == nil {
		return ""
	}
	group := ""
	for i, thread := range r.threads(dir) {
		at := strings.TrimPrefix(r.o.Resctrl.Group(thread), ".")
		if m := r.o.Resctrl.MonitoringGroupOf(thread); m != "" {
			at += "/" + path.Base(m)
		}
		if i > 0 && at != group {
			return "several"
		}
		group = at
	}
	return group
}

// threads returns the threads of a cgroup.
func (r *Runtime) threads(dir string) []int {
	file := path.Join(dir, "cgroup.threads")
	if !r.v2() {
		file = path.Join("cpu", dir, "tasks")
	}
	text, err := r.o.Kernel.ReadFile(file)
	if err != nil {
		return nil
	}
	var ids []int
	for word := range strings.FieldsSeq(string(text)) {
		id, _ := strconv.Atoi(word) // the fake writes valid numbers
		ids = append(ids, id)
	}
	return ids
}

// cookie returns the core scheduling cookie of the first thread of a cgroup.
func (r *Runtime) cookie(dir string) uint64 {
	for _, id := range r.threads(dir) {
		if r.o.Cookies != nil {
			c, _ := r.o.Cookies.Cookie(id) // the fake has every thread
			return c
		}
	}
	return 0
}

// attributes returns the attributes of a container's processes: those in spec, replaced by those that were set later.
func (r *Runtime) attributes(dir string, spec map[string]string) map[string]string {
	for _, id := range r.threads(dir) {
		if r.o.Processes == nil {
			break
		}
		for setting, text := range r.o.Processes.Of(id) {
			if spec == nil {
				spec = map[string]string{}
			}
			spec[setting] = text
		}
	}
	return spec
}

// kernelCookies returns the node's core scheduling for the agent; nil if the kernel does not support it.
func (p *parts) kernelCookies() coresched.Kernel {
	if p.cookies == nil {
		return nil // an interface with a nil pointer would not be nil
	}
	return p.cookies
}

// files returns the node's resctrl tree for the agent; nil if the node has none.
func (p *parts) files() resctrl.FS {
	if p.resctrl == nil {
		return nil // an interface with a nil pointer would not be nil
	}
	return p.resctrl
}

// compareRDT compares the resctrl fields of a want.
func (p *player) compareRDT(want scenario.Want, got effective.State, note func(string, ...any)) {
	files := p.resctrl
	if files == nil {
		return
	}
	group, _, _ := strings.Cut(got.RDTGroup, "/")
	text, err := files.ReadFile(path.Join(group, "schemata"))
	for _, line := range want.Schemata {
		if err != nil || !slices.Contains(strings.Fields(string(text)), line) {
			note("schemata are %q, wanted %s", text, line)
		}
	}
	groups, err := files.List(".")
	for _, name := range want.NoGroups {
		if err != nil || slices.Contains(groups, name) {
			note("groups are %q, wanted no %s", groups, name)
		}
	}
}
