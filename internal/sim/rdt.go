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

// rdtGroup returns the name of the resctrl group in which all threads of a cgroup are. It is "" for the root group, and
// "several" if the threads are in different groups. The name of a monitoring group follows after a slash.
func (r *Runtime) rdtGroup(dir string) string {
	if r.opts.Resctrl == nil {
		return ""
	}
	group := ""
	for i, thread := range r.threads(dir) {
		at := strings.TrimPrefix(r.opts.Resctrl.ControlGroupOf(thread), ".")
		if m := r.opts.Resctrl.MonitoringGroupOf(thread); m != "" {
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
	if !r.isV2() {
		file = path.Join("cpu", dir, "tasks")
	}
	text, err := r.opts.Kernel.ReadFile(file)
	if err != nil {
		return nil
	}
	var ids []int
	for word := range strings.FieldsSeq(string(text)) {
		id, _ := strconv.Atoi(word) // the simulated kernel writes valid numbers
		ids = append(ids, id)
	}
	return ids
}

// cookie returns the core scheduling cookie of the first thread of a cgroup; 0 if there is none.
func (r *Runtime) cookie(dir string) uint64 {
	for _, id := range r.threads(dir) {
		if r.opts.Cookies != nil {
			c, _ := r.opts.Cookies.Cookie(id) // it fails only for threads that have ended, and these left the cgroup
			return c
		}
	}
	return 0
}

// processAttributes returns the attributes of a container's processes, by name. An attribute that the agent set later
// replaces the attribute of the OCI spec.
func (r *Runtime) processAttributes(dir string, fromSpec map[string]string) map[string]string {
	for _, id := range r.threads(dir) {
		if r.opts.Processes == nil {
			break
		}
		for setting, text := range r.opts.Processes.TextsOf(id) {
			if fromSpec == nil {
				fromSpec = map[string]string{}
			}
			fromSpec[setting] = text
		}
	}
	return fromSpec
}

// kernelCookies returns the core scheduling of the node's kernel for the agent; nil if the kernel has none.
func (p *nodeParts) kernelCookies() coresched.Kernel {
	if p.cookies == nil {
		return nil // an interface with a nil pointer would not be nil
	}
	return p.cookies
}

// resctrlFiles returns the node's resctrl tree for the agent; nil if the node has none.
func (p *nodeParts) resctrlFiles() resctrl.FS {
	if p.resctrl == nil {
		return nil // an interface with a nil pointer would not be nil
	}
	return p.resctrl
}

// compareRDT compares the wanted schemata with the schemata of the container's resctrl group. It also checks that
// groups which the want forbids do not exist.
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
			note("resctrl groups are %q, wanted no group %s", groups, name)
		}
	}
}
