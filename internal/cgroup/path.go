package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	sliceSuffix  = ".slice" // the suffix of a systemd slice's name
	maxPath      = 4096     // Linux limits a path to 4096 bytes
	maxComponent = 255      // Linux limits a file name to 255 bytes
)

// Path returns the directory of a container from its OCI cgroupsPath. The cgroupfs driver writes cgroupsPath as a path,
// "/kubepods/burstable/podX/ID". The systemd driver writes it as slice:prefix:name,
// "kubepods-podX.slice:cri-containerd:ID". The parameter parent is the pod's cgroup parent, which may be empty. Path
// uses parent only if cgroupsPath has an empty slice or is a relative path.
func Path(parent, cgroupsPath string) (string, error) {
	return checkAndParse("cgroups path", cgroupsPath, func() (string, error) { return containerDir(parent, cgroupsPath) })
}

// checkAndParse checks a text, calls parse and checks the resulting path. Its errors begin with textName and the text.
func checkAndParse(textName, text string, parse func() (string, error)) (string, error) {
	err, dir := checkPathText(text), ""
	if err == nil {
		dir, err = parse()
	}
	if err == nil && len(dir) > maxPath {
		err = errors.New("too long")
	}
	if err != nil {
		return "", fmt.Errorf("%s %q: %w", textName, shorten(text), err)
	}
	return dir, nil
}

// containerDir returns the directory of a container for a cgroupsPath that checkPathText has accepted.
func containerDir(parent, cgroupsPath string) (string, error) {
	parts := strings.Split(cgroupsPath, ":")
	if !strings.Contains(cgroupsPath, "/") && len(parts) == 3 {
		return scopeDir(parent, parts)
	}
	dir, err := trimmedPath(cgroupsPath)
	if err != nil || strings.HasPrefix(cgroupsPath, "/") || parent == "" {
		return dir, err
	}
	above, err := PodPath(parent)
	if err != nil {
		return "", err
	}
	if dir == above || strings.HasPrefix(dir, above+"/") {
		return dir, nil
	}
	return path.Join(above, dir), nil
}

// scopeDir returns the directory that runc and crun use for the three parts of slice:prefix:name. If the name ends with
// ".slice", this is the directory of the slice with that name. Otherwise it is the directory of the scope
// prefix-name.scope.
func scopeDir(parent string, parts []string) (string, error) {
	unit := parts[1] + "-" + parts[2] + ".scope"
	switch {
	case parts[2] == "":
		return "", errors.New("no name after the last colon")
	case strings.HasSuffix(parts[2], sliceSuffix):
		unit = parts[2]
	}
	if len(unit) > maxComponent {
		return "", errors.New("unit name is too long")
	}
	var above string
	var err error
	switch {
	case parts[0] != "":
		above, err = expandSlice(parts[0])
	case parent != "":
		above, err = PodPath(parent)
	default:
		above = "system.slice" // the default of runc and crun
	}
	if err != nil {
		return "", err
	}
	return path.Join(above, unit), nil
}

// PodPath returns the directory of a pod from its cgroup parent: a path, a slice name, or the
// full path of a slice.
func PodPath(cgroupParent string) (string, error) {
	return checkAndParse("cgroup parent", cgroupParent, func() (string, error) {
		dir, err := trimmedPath(cgroupParent)
		// A slice's name determines its path, so a name alone is enough.
		if err == nil && !strings.Contains(dir, "/") && strings.HasSuffix(dir, sliceSuffix) {
			dir, err = expandSlice(dir)
		}
		if err == nil && dir == "" {
			err = errors.New("is the root of the hierarchy")
		}
		return dir, err
	})
}

// expandSlice returns the path of a systemd slice: every dash in its name begins a new level of
// the path, and "-.slice" is the root.
func expandSlice(name string) (string, error) {
	base, ok := strings.CutSuffix(name, sliceSuffix)
	if !ok || base == "" {
		return "", fmt.Errorf("%q is not a slice", shorten(name))
	}
	if base == "-" {
		return "", nil
	}
	if len(name) > maxComponent {
		return "", errors.New("slice name is too long")
	}
	var dir, prefix strings.Builder
	for part := range strings.SplitSeq(base, "-") {
		if part == "" {
			return "", fmt.Errorf("slice %q has an empty part between dashes", shorten(name))
		}
		if prefix.Len() > 0 {
			prefix.WriteByte('-')
			dir.WriteByte('/')
		}
		prefix.WriteString(part)
		dir.WriteString(prefix.String() + sliceSuffix)
	}
	return dir.String(), nil
}

// trimmedPath checks the parts of a path, and returns the path without leading and trailing slashes.
func trimmedPath(p string) (string, error) {
	p = strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
	if p == "" {
		return "", errors.New("is the root of the hierarchy")
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "":
			return "", errors.New("has an empty part")
		case part == "." || part == "..":
			return "", fmt.Errorf("has the part %q", part)
		case len(part) > maxComponent:
			return "", errors.New("a part is too long")
		}
	}
	return p, nil
}

// checkPathText returns an error for text that cannot be a path: empty, too long, not UTF-8, or with control
// characters.
func checkPathText(p string) error {
	switch {
	case p == "":
		return errors.New("is empty")
	case len(p) > maxPath:
		return errors.New("too long")
	case !utf8.ValidString(p):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("has a control character")
	}
	return nil
}

// shorten cuts long text of other programs for messages.
func shorten(s string) string {
	if len(s) > 96 {
		return s[:93] + "..."
	}
	return s
}
