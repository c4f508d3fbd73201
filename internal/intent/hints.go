package intent

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// HintKinds are the kinds of devices near which the agent places a container: devices that the kubelet's PodResources
// API reports, and all other devices.
type HintKinds struct{ PodResources, Devices bool }

// HintPaths is a list of devices by their paths.
type HintPaths struct {
	Glob  bool // the paths are patterns, otherwise prefixes
	Paths []string
}

// Contains reports whether the path of a device matches one of the patterns or prefixes.
func (h HintPaths) Contains(device string) bool {
	return slices.ContainsFunc(h.Paths, func(p string) bool {
		if h.Glob {
			is, err := path.Match(p, device)
			return is && err == nil
		}
		return strings.HasPrefix(device, p)
	})
}

// hintKinds reads the kinds of devices near which the agent places a container: "true", "false", or a list.
func (t *podTexts) hintKinds(key string) (kinds HintKinds, err error) {
	text, err := t.required(key)
	if err != nil {
		return kinds, err
	}
	list := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\n[]\"'", r) })
	for _, word := range list {
		switch word {
		case "true", "all":
			kinds = HintKinds{true, true}
		case "pod-resources":
			kinds.PodResources = true
		case "devices":
			kinds.Devices = true
		case "false", "none", "mounts", "-":
		default:
			return kinds, errors.New("want true, false, or a list of devices, pod-resources, mounts, all, none")
		}
	}
	return kinds, nil
}

// maxHintPaths limits the number of paths in a list. maxHintPath limits the length of a path, in bytes.
const maxHintPaths, maxHintPath = 32, 256

// hintPaths reads a list of paths.
func (t *podTexts) hintPaths(key string) (list HintPaths, err error) {
	var raw struct {
		Type  string   `json:"type"`
		Paths []string `json:"paths"`
	}
	if err := t.decodeStrict(key, &raw); err != nil {
		return list, err
	}
	if raw.Type != "" && raw.Type != "prefix" && raw.Type != "glob" {
		return list, fmt.Errorf("type is %s, want prefix or glob", Printable(raw.Type))
	}
	if len(raw.Paths) > maxHintPaths {
		return list, fmt.Errorf("has %d paths; the agent reads at most %d", len(raw.Paths), maxHintPaths)
	}
	for _, p := range raw.Paths {
		if _, err := path.Match(p, ""); raw.Type == "glob" && err != nil {
			return list, fmt.Errorf("%s is not a valid pattern, for example because a [ has no ]", Printable(p))
		}
		if len(p) > maxHintPath {
			return list, fmt.Errorf("has a path longer than %d bytes", maxHintPath)
		}
	}
	return HintPaths{raw.Type == "glob", raw.Paths}, nil
}
