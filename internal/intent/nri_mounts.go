package intent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// HostMount is a file or directory of the host that is mounted in a container.
type HostMount struct {
	Source, Destination string
	Writable            bool
}

// mountOptions are the mount options that a pod may request. Some of them apply to every mount anyway.
var mountOptions = []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "private", "rprivate"}

// protectedPaths are directories of a container on which no pod may mount.
var protectedPaths = []string{"/dev", "/proc", "/sys"}

// hostMounts reads bind mounts of the host's files.
func (t *podTexts) hostMounts(key string) ([]HostMount, error) {
	var list []struct {
		Source      string   `json:"source"`
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Options     []string `json:"options"`
	}
	if err := t.decodeStrict(key, &list); err != nil {
		return nil, err
	}
	if len(list) > maxInjected {
		return nil, fmt.Errorf("has more than %d mounts", maxInjected)
	}
	var out []HostMount
	for _, m := range list {
		if m.Type != "" && m.Type != "bind" && m.Type != "none" {
			return nil, fmt.Errorf("type %q is not supported, only type bind is", printable(m.Type))
		}
		for _, option := range m.Options {
			if !slices.Contains(mountOptions, option) {
				return nil, fmt.Errorf("option %q is not supported", printable(option))
			}
		}
		rw := slices.Contains(m.Options, "rw")
		switch {
		case !isCleanPath(m.Source):
			return nil, fmt.Errorf("source %q is not an absolute path in its shortest form: no . or .. element, no // and no last /", printable(m.Source))
		case !isCleanPath(m.Destination) || m.Destination == "/" || slices.ContainsFunc(protectedPaths, func(p string) bool { return m.Destination == p || strings.HasPrefix(m.Destination, p+"/") }):
			return nil, fmt.Errorf("destination %q is not an absolute path in its shortest form, or is /, or is in /dev, /proc or /sys", printable(m.Destination))
		case rw && slices.Contains(m.Options, "ro"):
			return nil, errors.New("options contains both ro and rw")
		case slices.ContainsFunc(out, func(o HostMount) bool { return o.Destination == m.Destination }):
			return nil, fmt.Errorf("destination %s is listed twice", m.Destination)
		}
		out = append(out, HostMount{Source: m.Source, Destination: m.Destination, Writable: rw})
	}
	return out, nil
}
