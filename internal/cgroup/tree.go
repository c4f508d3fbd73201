package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Tree is a cgroup tree of a known version. Its methods take directories that are relative to the
// root of the hierarchies, and are the same in both versions; Path and PodPath return them. Several
// goroutines may call the methods of a Tree concurrently.
type Tree struct {
	FS      FS
	Version Version
}

// Open detects the version of a tree.
func Open(tree FS) (*Tree, error) {
	v, err := Detect(tree)
	if err != nil {
		return nil, err
	}
	return &Tree{FS: tree, Version: v}, nil
}

// File returns the path of the file that holds a setting of dir.
func (t *Tree) File(dir string, field lifecycle.Field, key string) (string, error) {
	h := t.Resolve(dir, field, key)
	return h.Path, h.err
}

// IsDir reports whether dir can be a cgroup's directory: a path below the root of
// the hierarchies.
func IsDir(dir string) bool { return dir != "." && fs.ValidPath(dir) }

// path joins a controller, a valid dir and a file name. The controller and the name may be "". The controller is a
// directory only in cgroup version 1.
func (t *Tree) path(controller, dir, name string) string {
	if t.Version == V2 {
		controller = ""
	}
	switch {
	case dir == "." || name == "":
		return path.Join(controller, dir, name)
	case controller == "":
		return dir + "/" + name
	}
	return controller + "/" + dir + "/" + name
}

// Read returns the kernel's text of a setting. From cpu.max it returns only the quota or only the period.
func (t *Tree) Read(dir string, field lifecycle.Field, key string) (string, error) {
	return t.Resolve(dir, field, key).Read()
}

// read returns the text of a file without leading and trailing white space.
func (t *Tree) read(file string) (string, error) {
	data, err := t.FS.ReadFile(file)
	if err != nil {
		return "", &Error{Op: "read", Path: file, Err: err}
	}
	return strings.TrimSpace(string(data)), nil
}

// splitMax splits the text of cpu.max. The file's path is for the error.
func splitMax(file, text string) (quota, period string, err error) {
	f := strings.Fields(text)
	if len(f) != 2 {
		return "", "", &Error{Op: "read", Path: file, Err: fmt.Errorf("%q is not a quota and a period", shorten(text))}
	}
	return f[0], f[1], nil
}

// Write encodes a value and writes it to the file of its setting.
func (t *Tree) Write(dir string, v lifecycle.Value) error {
	h := t.Resolve(dir, v.Field, v.Key)
	text, err := h.Encode(v)
	if err != nil {
		return &Error{Op: "encode", Path: path.Join(dir, v.Field.String()), Value: v.String(), Err: err}
	}
	return h.Write(text)
}

// WriteText writes kernel text to the file of a setting, in the form that Read and Handle.Encode return. Empty text
// clears a list. In cgroup version 2 an empty list means the parent's list. Neither version accepts an empty list for a
// cgroup with tasks (ENOSPC). Other settings accept no empty text.
func (t *Tree) WriteText(dir string, field lifecycle.Field, key, text string) error {
	return t.Resolve(dir, field, key).Write(text)
}

// write writes text to a file. If text is empty, it writes a line without text.
func (t *Tree) write(file, text string) error {
	data := []byte(text)
	if text == "" {
		// The kernel ignores a write of no bytes.
		data = []byte("\n")
	}
	if err := t.FS.WriteFile(file, data); err != nil {
		return &Error{Op: "write", Path: file, Value: text, Err: err}
	}
	return nil
}

// ReadBandwidth returns the kernel's text of quota and period.
func (t *Tree) ReadBandwidth(dir string) (quota, period string, err error) {
	file, err := t.File(dir, lifecycle.CPUQuota, "")
	if err != nil {
		return "", "", &Error{Op: "read", Path: dir, Err: err}
	}
	if quota, err = t.read(file); err != nil {
		return "", "", err
	}
	if t.Version == V2 {
		return splitMax(file, quota)
	}
	period, err = t.Read(dir, lifecycle.CPUPeriod, "")
	return quota, period, err
}

// WriteBandwidth sets quota and period. If one of them is "", it stays unchanged. In cgroup version 2, WriteBandwidth
// makes one write. In version 1, it makes two writes, the quota first. If the kernel refuses one of the two writes,
// because of the limits of the parent, a child or the burst, WriteBandwidth tries again with the period first.
func (t *Tree) WriteBandwidth(dir, quota, period string) error {
	file, err := t.File(dir, lifecycle.CPUQuota, "")
	switch {
	case err != nil:
		return &Error{Op: "write", Path: dir, Value: quota, Err: err}
	case t.Version == V1:
		return t.writeBandwidthV1(dir, quota, period)
	case period == "":
		return t.write(file, quota) // the kernel keeps the period
	case quota == "":
		if quota, _, err = t.ReadBandwidth(dir); err != nil {
			return err
		}
	}
	return t.write(file, quota+" "+period)
}

// writeBandwidthV1 writes the two files of quota and period, in the order that the kernel accepts.
func (t *Tree) writeBandwidthV1(dir, quota, period string) error {
	switch {
	case period == "":
		return t.WriteText(dir, lifecycle.CPUQuota, "", quota)
	case quota == "":
		return t.WriteText(dir, lifecycle.CPUPeriod, "", period)
	}
	oldQuota, oldPeriod, err := t.ReadBandwidth(dir)
	if err != nil {
		return err
	}
	type step struct {
		field    lifecycle.Field
		old, new string
	}
	two := [2]step{{lifecycle.CPUQuota, oldQuota, quota}, {lifecycle.CPUPeriod, oldPeriod, period}}
	try := func(a, b step) error {
		if err := t.WriteText(dir, a.field, "", a.new); err != nil {
			return err
		}
		err := t.WriteText(dir, b.field, "", b.new)
		if err != nil {
			// The limit is now neither the old nor the new one, so the first write is undone.
			err = errors.Join(err, t.WriteText(dir, a.field, "", a.old))
		}
		return err
	}
	err = try(two[0], two[1])
	if errors.Is(err, syscall.EINVAL) {
		if second := try(two[1], two[0]); second == nil {
			return nil
		}
	}
	return err
}

// Effective returns the CPUs (CPUSetCPUs) or memory nodes (CPUSetMems) that tasks in dir may use, as a kernel list.
func (t *Tree) Effective(dir string, field lifecycle.Field) (string, error) {
	return t.readEffectiveList(dir, field, ".effective_")
}

// Allowed returns the CPUs (CPUSetCPUs) or memory nodes (CPUSetMems) that dir allows its children, as a kernel list.
// The root is ".".
func (t *Tree) Allowed(dir string, field lifecycle.Field) (string, error) {
	return t.readEffectiveList(dir, field, ".")
}

// readEffectiveList reads the effective list of CPUs or memory nodes of a cgroup. In cgroup version 1, the parameter
// dotV1 replaces the dot in the name of the setting's file: with ".effective_", it reads "cpuset.effective_cpus"
// instead of "cpuset.cpus".
func (t *Tree) readEffectiveList(dir string, field lifecycle.Field, dotV1 string) (string, error) {
	s, err := FindSetting(field, "")
	if err != nil || s.Kind != KindList || !fs.ValidPath(dir) {
		return "", &Error{Op: "read", Path: dir, Err: errors.ErrUnsupported}
	}
	name := s.V2.Name + ".effective"
	if t.Version == V1 {
		name = strings.Replace(s.V1.Name, ".", dotV1, 1)
	}
	return t.read(t.path("cpuset", dir, name))
}

// Exists reports whether dir exists, in version 1 in the hierarchy of the given controller. A
// directory that cannot be opened counts as existing: if the agent has no free file descriptors
// (EMFILE), it must not take running pods for ended pods.
func (t *Tree) Exists(dir, controller string) bool {
	err := t.checkDir(t.path(controller, dir, ""))
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
}

// dirStater is an FS that finds out whether a directory exists without listing it.
type dirStater interface {
	StatDir(path string) error
}

var _ dirStater = (*Real)(nil)

// checkDir returns nil if dir is a directory that can be opened.
func (t *Tree) checkDir(dir string) error {
	if fast, can := t.FS.(dirStater); can {
		return fast.StatDir(dir)
	}
	_, err := t.FS.List(dir)
	return err
}

// ErrPIDNamespace means that a cgroup has threads that the agent's PID namespace does not contain. The kernel shows
// such threads as 0 in cgroup v2, and not at all in v1.
var ErrPIDNamespace = errors.New("threads of this cgroup are in another PID namespace: run the agent in the PID namespace of the host (hostPID: true)")

// Threads returns the ids of the threads in dir and in the cgroups below dir. In version 1 it reads the hierarchy of
// the controller cpu. In version 2 it returns ErrPIDNamespace if the agent's PID namespace lacks one of the threads. In
// version 1 the kernel leaves out such threads, and Threads returns no error.
func (t *Tree) Threads(dir string) ([]int, error) {
	name := "cgroup.threads"
	if t.Version == V1 {
		name = "tasks"
	}
	if !fs.ValidPath(dir) || dir == "." {
		return nil, &Error{Op: "read", Path: dir, Err: errors.ErrUnsupported}
	}
	text, err := t.read(t.path("cpu", dir, name))
	if err != nil {
		return nil, err
	}
	var ids []int
	for word := range strings.FieldsSeq(text) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return nil, &Error{Op: "read", Path: path.Join(dir, name), Err: err}
		}
		if id <= 0 { // the caller must not pass 0 to a system call, where it means the calling thread
			return nil, &Error{Op: "read", Path: path.Join(dir, name), Err: ErrPIDNamespace}
		}
		ids = append(ids, id)
	}
	below, err := t.Children(dir, "cpu")
	if err != nil {
		return ids, err
	}
	for _, child := range below {
		more, err := t.Threads(path.Join(dir, child))
		if err != nil && !IsNotExist(err) {
			return ids, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}

// Children returns the names of the cgroups directly below dir. In version 1 it reads the hierarchy of the given
// controller.
func (t *Tree) Children(dir, controller string) ([]string, error) {
	d := t.path(controller, dir, "")
	names, err := t.FS.List(d)
	if err != nil {
		return nil, &Error{Op: "read", Path: d, Err: err}
	}
	return names, nil
}
