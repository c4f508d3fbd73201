package cgroup

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Handle is a setting of one cgroup with its resolved file path.
type Handle struct {
	// Dir is the cgroup. Path is the path of the setting's file; "" if there is none.
	Dir, Path string

	tree       *Tree
	setting    *Setting // nil if no setting has the field and key
	controller string   // the controller of the file; "" if there is no file
	err        error    // why the setting has no file
}

// Resolve finds the file of a setting of dir. If no setting has the field and key, Encode, Read and Write of the handle
// return an error. The same holds if the setting has no file in this cgroup version, or if dir cannot be a cgroup.
func (t *Tree) Resolve(dir string, field lifecycle.Field, key string) Handle {
	h := Handle{tree: t, Dir: dir}
	if h.setting, h.err = FindSetting(field, key); h.err != nil {
		return h
	}
	f, err := h.setting.file(t.Version)
	if err == nil && !IsDir(dir) {
		err = fmt.Errorf("%q is not a cgroup directory", shorten(dir))
	}
	if h.err = err; err == nil {
		h.Path, h.controller = t.path(f.Controller, dir, f.Name), f.Controller
	}
	return h
}

// Name returns the path of the setting's file, or the directory of the cgroup if the setting has no file.
func (h Handle) Name() string {
	if h.err != nil {
		return h.Dir
	}
	return h.Path
}

// OpError makes an *Error for an operation on the setting. The parameter err is a reason that the agent found itself,
// and not an error of the kernel.
func (h Handle) OpError(op, value string, err error) error {
	return &Error{Op: op, Path: h.Name(), Value: value, Err: err}
}

// Encode returns the kernel's text for a value of the handle's setting. Quota and period have separate texts, also in
// cgroup version 2, which has both in one file. When Tree writes this file, it joins the texts. Encode returns an error
// for an empty set, and for a value that the kernel refuses or changes (version 1 changes shares that are too small or
// too large).
func (h Handle) Encode(v lifecycle.Value) (string, error) {
	if h.setting == nil {
		return "", h.err
	}
	text, err := h.setting.encode(h.tree.Version, v)
	if err == nil {
		err = h.err
	}
	return text, err
}

// Same reports whether two kernel texts of the setting mean the same value, such as "0,1" and "0-1".
func (h Handle) Same(a, b string) bool { return a == b || h.setting != nil && h.setting.isSame(a, b) }

// Compare returns -1 if kernel text a means less than kernel text b, 0 if both mean the same, and 1 if a means more.
// "No limit" is more than any number, and a text that is not valid counts as no limit. Compare returns 0 if the handle
// has no setting.
func (h Handle) Compare(a, b string) int {
	if h.setting == nil {
		return 0
	}
	return h.setting.compare(a, b)
}

// IsFreeText reports whether the setting is plain text. If the agent reads such a text again, the kernel possibly shows
// it in another form.
func (h Handle) IsFreeText() bool { return h.setting == nil || h.setting.Kind == KindText }

// Read returns the kernel's text of the setting. From cpu.max it returns only the quota or only the period.
func (h Handle) Read() (string, error) {
	if h.err != nil {
		return "", h.OpError("read", "", h.err)
	}
	text, err := h.tree.read(h.Path)
	if err != nil {
		return text, err
	}
	if h.tree.Version == V1 || h.setting.Kind != KindBandwidth {
		return h.setting.ownPart(h.tree.Version, text), nil
	}
	quota, period, err := splitMax(h.Path, text)
	if h.setting.Field == lifecycle.CPUPeriod {
		return period, err
	}
	return quota, err
}

// Write writes kernel text to the setting's file. Empty text clears a list; other settings accept no empty text.
func (h Handle) Write(text string) error {
	switch {
	case h.err != nil:
		return h.OpError("write", text, h.err)
	case text == "" && h.setting.Kind != KindList:
		// The kernel reads an empty limit of memory or huge pages as 0.
		return h.OpError("write", "", errors.New("the text is empty"))
	case h.tree.Version == V2 && h.setting.Field == lifecycle.CPUPeriod:
		return h.tree.WriteBandwidth(h.Dir, "", text)
	}
	text = h.setting.textToWrite(h.tree.Version, text)
	if h.tree.Version == V1 && h.setting.Field == lifecycle.MemoryLimit {
		return h.tree.writeLimitV1(h.Dir, h.Path, text)
	}
	return h.tree.write(h.Path, text)
}

// Missing reports whether the setting's cgroup does not exist but may be created later. It returns false if the cgroup
// exists and only lacks the file, and if the hierarchy is not mounted: such a file does not appear later.
func (h Handle) Missing() bool {
	controller := ""
	if h.tree.Version == V1 {
		controller = h.controller
	}
	return h.err == nil && (controller == "" || h.tree.Exists(".", controller)) && !h.tree.Exists(h.Dir, controller)
}
