package cgroup

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Handle is a setting of one cgroup, resolved once: reading and writing it looks
// nothing up.
type Handle struct {
	// Dir is the cgroup. Path is that of the setting's file, "" where there is none.
	Dir, Path string

	tree       *Tree
	set        *Setting // nil of what is no setting
	controller string
	err        error // why there is no file
}

// Resolve finds the file that holds a setting of dir. What is no setting, or has no
// file in this version, or is in no cgroup's directory, is refused at each use of the
// handle.
func (t *Tree) Resolve(dir string, field lifecycle.Field, key string) Handle {
	h := Handle{tree: t, Dir: dir}
	if h.set, h.err = Find(field, key); h.err != nil {
		return h
	}
	f, err := h.set.file(t.Version)
	if err == nil && !IsDir(dir) {
		err = fmt.Errorf("%q is not a cgroup directory", shorten(dir))
	}
	if h.err = err; err == nil {
		h.Path, h.controller = t.path(f.Controller, dir, f.Name), f.Controller
	}
	return h
}

// Name is the path of the file, or the directory where there is none.
func (h Handle) Name() string {
	if h.err != nil {
		return h.Dir
	}
	return h.Path
}

// Refuse is the error of something that was not done to the file.
func (h Handle) Refuse(op, value string, err error) error {
	return &Error{Op: op, Path: h.Name(), Value: value, Err: err}
}

// Encode is the function Encode, for the handle's setting. Not only the value must
// make sense, the directory must too.
func (h Handle) Encode(v lifecycle.Value) (string, error) {
	if h.set == nil {
		return "", h.err
	}
	text, err := h.set.encode(h.tree.Version, v)
	if err == nil {
		err = h.err
	}
	return text, err
}

// Same reports whether two kernel texts of the setting mean the same.
func (h Handle) Same(a, b string) bool { return a == b || h.set != nil && h.set.same(a, b) }

// Compare orders two kernel texts of a setting whose values have an order, no limit
// above all; 0 of what is no setting.
func (h Handle) Compare(a, b string) int {
	if h.set == nil {
		return 0
	}
	return h.set.compare(a, b)
}

// Free reports whether the kernel may show the text in another form than it was
// written in.
func (h Handle) Free() bool { return h.set == nil || h.set.Kind == Text }

// Read returns the kernel's text. Of cpu.max it is the part that is the field's.
func (h Handle) Read() (string, error) {
	if h.err != nil {
		return "", h.Refuse("read", "", h.err)
	}
	text, err := h.tree.read(h.Path)
	if err != nil {
		return text, err
	}
	if h.tree.Version == V1 || h.set.Kind != Bandwidth {
		return h.set.part(h.tree.Version, text), nil
	}
	quota, period, err := splitMax(h.Path, text)
	if h.set.Field == lifecycle.CPUPeriod {
		return period, err
	}
	return quota, err
}

// Write sets the kernel's text, as Tree.WriteText does.
func (h Handle) Write(text string) error {
	switch {
	case h.err != nil:
		return h.Refuse("write", text, h.err)
	case text == "" && h.set.Kind != List:
		// To the kernel an empty limit of memory or of huge pages is 0.
		return h.Refuse("write", "", errors.New("nothing to write"))
	case h.tree.Version == V2 && h.set.Field == lifecycle.CPUPeriod:
		return h.tree.WriteBandwidth(h.Dir, "", text)
	}
	text = h.set.line(h.tree.Version, text)
	if h.tree.Version == V1 && h.set.Field == lifecycle.MemoryLimit {
		return h.tree.writeLimitV1(h.Dir, h.Path, text)
	}
	return h.tree.write(h.Path, text)
}

// Missing reports whether the setting's cgroup does not exist and may come: a file
// that is missing in a cgroup never comes, nor does a hierarchy that is not mounted.
func (h Handle) Missing() bool {
	controller := ""
	if h.tree.Version == V1 {
		controller = h.controller
	}
	return h.err == nil && (controller == "" || h.tree.Exists(".", controller)) && !h.tree.Exists(h.Dir, controller)
}
