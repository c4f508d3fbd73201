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

// mountOptions are the options of a mount that are served, or that every mount has.
var mountOptions = []string{"bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "private", "rprivate"}

// ownPlaces are directories of a container on which no pod may mount.
var ownPlaces = []string{"/dev", "/proc", "/sys"}

// hostMounts reads bind mounts of the host's files.
func (t *texts) hostMounts(key string) ([]HostMount, error) {
	var list []struct {
		Source      string   `json:"source"`
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Options     []string `json:"options"`
	}
	if err := t.structured(key, &list); err != nil {
		return nil, err
	}
	if len(list) > maxInjected {
		return nil, fmt.Errorf("more than %d mounts", maxInjected)
	}
	var out []HostMount
	for _, m := range list {
		if m.Type != "" && m.Type != "bind" && m.Type != "none" {
			return nil, fmt.Errorf("type %q is not served: only bind is", printable(m.Type))
		}
		for _, option := range m.Options {
			if !slices.Contains(mountOptions, option) {
				return nil, fmt.Errorf("option %q is not served", printable(option))
			}
		}
		rw := slices.Contains(m.Options, "rw")
		switch {
		case !plainPath(m.Source):
			return nil, fmt.Errorf("source %q is not an absolute and clean path", printable(m.Source))
		case !plainPath(m.Destination) || m.Destination == "/" || slices.ContainsFunc(ownPlaces, func(p string) bool { return m.Destination == p || strings.HasPrefix(m.Destination, p+"/") }):
			return nil, fmt.Errorf("destination %q is not an absolute and clean path, or a place where nothing is mounted", printable(m.Destination))
		case rw && slices.Contains(m.Options, "ro"):
			return nil, errors.New("ro and rw are both there")
		case slices.ContainsFunc(out, func(o HostMount) bool { return o.Destination == m.Destination }):
			return nil, fmt.Errorf("destination %s is there twice", m.Destination)
		}
		out = append(out, HostMount{Source: m.Source, Destination: m.Destination, Writable: rw})
	}
	return out, nil
}
