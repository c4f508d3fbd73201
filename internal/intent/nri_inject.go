package intent

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// maxInjected limits the entries of one list of devices, mounts or interfaces.
const maxInjected = 64

// injectedDevices reads device nodes: their paths in the container, and the numbers of the
// host's devices.
func (t *podTexts) injectedDevices(key string) ([]lifecycle.Device, error) {
	var list []struct {
		Path  string `json:"path"`
		Type  string `json:"type"`
		Major int64  `json:"major"`
		Minor int64  `json:"minor"`
		Mode  uint32 `json:"file_mode"`
		UID   uint32 `json:"uid"`
		GID   uint32 `json:"gid"`
	}
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	if len(list) > maxInjected {
		return nil, fmt.Errorf("has more than %d devices", maxInjected)
	}
	var out []lifecycle.Device
	for _, d := range list {
		switch {
		case !strings.HasPrefix(d.Path, "/dev/") || !isCleanPath(d.Path):
			return nil, fmt.Errorf("%q is not a path below /dev", printable(d.Path))
		case d.Type != "c" && d.Type != "b" && d.Type != "u":
			return nil, fmt.Errorf("%s: type %q is not c or b", d.Path, printable(d.Type))
		case d.Major < 0 || d.Major >= 1<<12 || d.Minor < 0 || d.Minor >= 1<<20:
			return nil, fmt.Errorf("%s: %d:%d is not a valid device number", d.Path, d.Major, d.Minor)
		case d.Mode > 0o777:
			return nil, fmt.Errorf("%s: the file mode %o is above 777", d.Path, d.Mode)
		case slices.ContainsFunc(out, func(o lifecycle.Device) bool { return o.Path == d.Path }):
			return nil, fmt.Errorf("%s is listed twice", d.Path)
		}
		device := lifecycle.Device{Path: d.Path, Type: strings.Replace(d.Type, "u", "c", 1), Major: d.Major, Minor: d.Minor}
		if d.Mode != 0 {
			device.FileMode = lifecycle.Some(d.Mode)
		}
		if d.UID != 0 {
			device.UID = lifecycle.Some(d.UID)
		}
		if d.GID != 0 {
			device.GID = lifecycle.Some(d.GID)
		}
		out = append(out, device)
	}
	return out, nil
}

// isCleanPath reports whether a path is absolute, clean and shorter than 1024 bytes, and has only printable ASCII
// characters other than space.
func isCleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) < 1024 && !strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' })
}

// cdiDevices reads fully qualified names of CDI devices.
func (t *podTexts) cdiDevices(key string) ([]string, error) {
	var list []string
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	if len(list) > maxInjected {
		return nil, fmt.Errorf("has more than %d devices", maxInjected)
	}
	for i, name := range list {
		vendor, rest, _ := strings.Cut(name, "/")
		class, device, _ := strings.Cut(rest, "=")
		if !isCDIWord(vendor, ".") || !isCDIWord(class, ".") || !isCDIWord(device, ".:") {
			return nil, fmt.Errorf("%q is not the name of a CDI device, such as vendor.com/class=name", printable(name))
		}
		if slices.Contains(list[:i], name) {
			return nil, fmt.Errorf("%s is listed twice", name)
		}
	}
	return list, nil
}

// isCDIWord reports whether a text has only letters, digits, "-", "_" and the characters in extraChars.
func isCDIWord(s, extraChars string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, asciiAlphanumerics+"-_"+extraChars) == ""
}
