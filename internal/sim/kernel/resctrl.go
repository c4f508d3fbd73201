package kernel

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ResctrlHardware has the resources of a machine that resctrl can divide.
type ResctrlHardware struct {
	CacheMask string `json:"cacheMask"` // bit mask of the L3 cache, one bit per cache way, in hexadecimal; "" if the cache cannot be divided
	Caches    []int  `json:"caches"`    // ids of the L3 caches
	// Bandwidth is the value of a group without a limit, 100 or 2048; 0 if the bandwidth cannot be limited.
	Bandwidth     int  `json:"bandwidth"`
	Groups        int  `json:"groups"`            // number of supported control groups, including the root
	HasMonitoring bool `json:"measure,omitempty"` // supports monitoring groups
}

// Resctrl is a resctrl tree in memory. It refuses the writes that the kernel refuses according to its documentation. No
// test compares Resctrl with a real kernel.
type Resctrl struct {
	hardware ResctrlHardware

	mu                sync.Mutex
	groups            map[string]*resctrlGroup // the groups by directory; the root is "."
	controlGroupOf    map[int]string           // the directory of each thread's control group
	monitoringGroupOf map[int]string           // the directory of each thread's monitoring group
	lastCommandStatus string                   // the text of info/last_cmd_status
}

// resctrlGroup is a control group or a monitoring group.
type resctrlGroup struct {
	schemataLines map[string]string // by resource: the line in schemata, without the resource
}

// NewResctrl returns a tree that has only the root group, which has the whole cache and bandwidth.
func NewResctrl(h ResctrlHardware) *Resctrl {
	f := &Resctrl{hardware: h, groups: map[string]*resctrlGroup{}, controlGroupOf: map[int]string{}, monitoringGroupOf: map[int]string{}, lastCommandStatus: "ok"}
	f.groups["."] = f.newGroup()
	return f
}

// newGroup returns a group that has the whole cache and bandwidth.
func (f *Resctrl) newGroup() *resctrlGroup {
	g := &resctrlGroup{schemataLines: map[string]string{}}
	all := func(value string) string {
		var out []string
		for _, id := range f.hardware.Caches {
			out = append(out, fmt.Sprintf("%d=%s", id, value))
		}
		return strings.Join(out, ";")
	}
	if f.hardware.CacheMask != "" {
		g.schemataLines["L3"] = all(f.hardware.CacheMask)
	}
	if f.hardware.Bandwidth != 0 {
		g.schemataLines["MB"] = all(strconv.Itoa(f.hardware.Bandwidth))
	}
	return g
}

// ControlGroupOf returns the directory of a thread's control group.
func (f *Resctrl) ControlGroupOf(thread int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.controlGroupLocked(thread)
}

// controlGroupLocked is ControlGroupOf for callers that hold the lock.
func (f *Resctrl) controlGroupLocked(thread int) string {
	if at, known := f.controlGroupOf[thread]; known {
		return at
	}
	return "."
}

// MonitoringGroupOf returns the directory of a thread's monitoring group; "" if the thread is in none.
func (f *Resctrl) MonitoringGroupOf(thread int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.monitoringGroupOf[thread]
}

// ReadFile returns a file's text.
func (f *Resctrl) ReadFile(file string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hardware
	switch {
	case file == "info/last_cmd_status":
		return []byte(f.lastCommandStatus + "\n"), nil
	case h.CacheMask != "" && file == "info/L3/cbm_mask":
		return []byte(h.CacheMask + "\n"), nil
	case h.CacheMask != "" && file == "info/L3/min_cbm_bits":
		return []byte("1\n"), nil
	case h.CacheMask != "" && file == "info/L3/num_closids", h.Bandwidth != 0 && file == "info/MB/num_closids":
		return []byte(strconv.Itoa(h.Groups) + "\n"), nil
	case h.Bandwidth != 0 && file == "info/MB/bandwidth_gran":
		return []byte("10\n"), nil
	case h.HasMonitoring && file == "info/L3_MON/num_rmids":
		return []byte("64\n"), nil
	}
	g := f.groups[path.Dir(file)]
	switch {
	case g == nil:
	case path.Base(file) == "schemata" && !isMonitoringGroup(path.Dir(file)):
		var out strings.Builder
		for _, resource := range []string{"L3", "MB"} {
			if line, has := g.schemataLines[resource]; has {
				out.WriteString("    " + resource + ":" + line + "\n")
			}
		}
		return []byte(out.String()), nil
	case path.Base(file) == "tasks":
		return f.tasksLocked(path.Dir(file)), nil
	}
	return nil, pathError("open", file, syscall.ENOENT)
}

// tasksLocked returns the text of the file tasks of a group. The lock is held.
func (f *Resctrl) tasksLocked(dir string) []byte {
	from := f.controlGroupOf
	if isMonitoringGroup(dir) {
		from = f.monitoringGroupOf
	}
	var ids []int
	for id, at := range from {
		if at == dir {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var out []byte
	for _, id := range ids {
		out = append(strconv.AppendInt(out, int64(id), 10), '\n')
	}
	return out
}

// isMonitoringGroup reports whether a directory is that of a monitoring group.
func isMonitoringGroup(dir string) bool { return path.Base(path.Dir(dir)) == "mon_groups" }

// WriteFile writes a file. It fails with the kernel's errno for a text that the kernel refuses.
func (f *Resctrl) WriteFile(file string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastCommandStatus = "ok"
	dir := path.Dir(file)
	g := f.groups[dir]
	switch {
	case g == nil:
	case path.Base(file) == "tasks":
		id, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil || id < 0 {
			return pathError("write", file, syscall.EINVAL)
		}
		if !isMonitoringGroup(dir) {
			f.controlGroupOf[id] = dir
			delete(f.monitoringGroupOf, id) // a thread leaves its monitoring group when it moves to another control group
			return nil
		}
		if f.controlGroupLocked(id) != path.Clean(path.Dir(path.Dir(dir))) {
			f.lastCommandStatus = "Can't move task to different control group"
			return pathError("write", file, syscall.EINVAL)
		}
		f.monitoringGroupOf[id] = dir
		return nil
	case path.Base(file) == "schemata" && !isMonitoringGroup(dir):
		return f.setSchemataLocked(g, file, string(data))
	}
	return pathError("open", file, syscall.ENOENT)
}

// setSchemataLocked handles a write to the file schemata of a group. The lock is held.
func (f *Resctrl) setSchemataLocked(g *resctrlGroup, file, text string) error {
	refuse := func(why string) error {
		f.lastCommandStatus = why
		return pathError("write", file, syscall.EINVAL)
	}
	if !strings.HasSuffix(text, "\n") {
		return refuse("")
	}
	for line := range strings.Lines(text) {
		resource, entries, ok := strings.Cut(strings.TrimSpace(line), ":")
		if _, has := g.schemataLines[resource]; !ok || !has {
			return refuse("Unknown or unsupported resource name")
		}
		for entry := range strings.SplitSeq(entries, ";") {
			_, value, _ := strings.Cut(entry, "=")
			base := 10
			if resource == "L3" {
				base = 16
			}
			n, err := strconv.ParseUint(value, base, 32)
			full, _ := strconv.ParseUint(f.hardware.CacheMask, 16, 32)
			run := n >> trailingZeros(n)
			switch {
			case err != nil || n == 0 || resource == "L3" && (n > full || run&(run+1) != 0):
				return refuse("Mask out of range or not contiguous")
			case resource == "MB" && (n > uint64(f.hardware.Bandwidth) || f.hardware.Bandwidth == 100 && n < 10):
				return refuse("MB value out of range")
			}
		}
		g.schemataLines[resource] = entries
	}
	return nil
}

// trailingZeros returns how many of the lowest bits of n are 0; 0 if n is 0.
func trailingZeros(n uint64) int {
	i := 0
	for n != 0 && n&1 == 0 {
		n, i = n>>1, i+1
	}
	return i
}

// List returns the names of the directories directly below dir.
func (f *Resctrl) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent := path.Clean(dir)
	if f.groups[parent] == nil && path.Base(parent) != "mon_groups" || path.Base(parent) == "mon_groups" && !f.hardware.HasMonitoring {
		return nil, pathError("open", dir, syscall.ENOENT)
	}
	var names []string
	for at := range f.groups {
		if at != "." && path.Dir(at) == parent {
			names = append(names, path.Base(at))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Mkdir makes a group. It fails with ENOSPC if the machine does not support another control group.
func (f *Resctrl) Mkdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = path.Clean(dir)
	control := 0
	for at := range f.groups {
		if !isMonitoringGroup(at) {
			control++
		}
	}
	switch {
	case f.groups[dir] != nil:
		return pathError("mkdir", dir, syscall.EEXIST)
	case isMonitoringGroup(dir) && (!f.hardware.HasMonitoring || f.groups[path.Clean(path.Dir(path.Dir(dir)))] == nil), !isMonitoringGroup(dir) && strings.Contains(dir, "/"):
		return pathError("mkdir", dir, syscall.ENOENT)
	case !isMonitoringGroup(dir) && control >= f.hardware.Groups:
		return pathError("mkdir", dir, syscall.ENOSPC)
	}
	f.groups[dir] = f.newGroup()
	return nil
}

// Rmdir removes a group with its monitoring groups. The threads of the group move to the root group.
func (f *Resctrl) Rmdir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir = path.Clean(dir)
	if dir == "." || f.groups[dir] == nil {
		return pathError("rmdir", dir, syscall.ENOENT)
	}
	for at := range f.groups {
		if at == dir || strings.HasPrefix(at, dir+"/") {
			delete(f.groups, at)
		}
	}
	for id, at := range f.controlGroupOf {
		if at == dir {
			delete(f.controlGroupOf, id)
		}
	}
	for id, at := range f.monitoringGroupOf {
		if f.groups[at] == nil {
			delete(f.monitoringGroupOf, id)
		}
	}
	return nil
}
