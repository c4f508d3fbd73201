// Package adopt reads the CPUs and memory nodes that other agents of a node gave to containers, from the files and
// annotations of these agents. The package decides nothing. It does not verify the checksums in these files, because
// only the other agent can compute them. Instead, package engine compares the CPUs with the container's cpuset in the
// kernel before Trimtab uses them.
package adopt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// MaxBytes is the largest size, in bytes, of a file that Read accepts. The file of a node with a thousand containers
// has a few megabytes.
const MaxBytes = 32 << 20

// System is another program that gives CPUs to containers, such as the kubelet or koordlet. Trimtab can take over the
// CPUs and memory nodes that the other program gave to containers.
type System struct {
	Name string
	// Files are the files that Read reads, in this order. At least one of them must exist, unless the list is empty.
	Files []File
	// parsePod reads what the agent stored in the annotations and labels of a pod; nil if the agent stores nothing there.
	parsePod func(*lifecycle.Pod) ([]lifecycle.FormerContainer, error)
}

// File is a file in which another agent stores its state.
type File struct {
	// Path is the default path of the file, below the root of the host.
	Path string
	// parse returns the containers in the text of the file. Errors name the line or the key in the file.
	parse func(text []byte) ([]lifecycle.FormerContainer, error)
}

// Systems returns the agents that Trimtab can take over from.
func Systems() []System {
	return []System{
		{Name: "kubelet", Files: []File{
			{"/var/lib/kubelet/cpu_manager_state", parseKubeletCPUs},
			{"/var/lib/kubelet/memory_manager_state", parseKubeletMemory},
		}},
		{Name: "nri-plugins", Files: []File{{"/var/lib/nri-resource-policy/cache", parseNRIPluginsCache}}},
		{Name: "koordinator", parsePod: parseKoordinatorPod},
		{Name: "katalyst", Files: []File{
			{"/var/lib/katalyst/qrm_advisor/cpu_plugin_state", parseKatalystCPUs},
			{"/var/lib/katalyst/qrm_advisor/memory_plugin_state", parseKatalystMemory},
		}},
		{Name: "rubik", parsePod: parseRubikPod},
	}
}

// SystemNames returns the names of the agents that Trimtab can take over from.
func SystemNames() (names []string) {
	for _, s := range Systems() {
		names = append(names, s.Name)
	}
	return names
}

// FindSystem returns the agent with a name. It returns an error if Trimtab cannot take over from this agent.
func FindSystem(name string) (System, error) {
	all := Systems()
	i := slices.IndexFunc(all, func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, fmt.Errorf("%q is not an agent that Trimtab can take over from: want one of %s", name, strings.Join(SystemNames(), ", "))
	}
	return all[i], nil
}

// Read reads the files of the agent s below a root directory. If several files name the same container, the result has
// only one entry for this container, with the values of all these files.
func (s System) Read(root fs.FS) (lifecycle.FormerAgent, error) {
	out := lifecycle.FormerAgent{System: s.Name}
	var missing []string
	for _, f := range s.Files {
		text, err := readFile(root, f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, f.Path)
			continue
		}
		var gave []lifecycle.FormerContainer
		if err == nil {
			gave, err = f.parse(text)
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", f.Path, err)
		}
		for _, row := range gave {
			row.Where = f.Path + ": " + row.Where
			out.Containers = mergeEntry(out.Containers, row)
		}
	}
	if len(s.Files) > 0 && len(missing) == len(s.Files) {
		return out, fmt.Errorf("%s left no state to take over: there is no %s", s.Name, strings.Join(missing, " and no "))
	}
	slices.SortFunc(out.Containers, compareEntries)
	return out, nil
}

// readFile reads a file. It returns an error if the file is larger than MaxBytes.
func readFile(root fs.FS, path string) ([]byte, error) {
	f, err := root.Open(strings.TrimPrefix(path, "/"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("the file is larger than %d MiB", MaxBytes>>20)
	}
	return text, err
}

// sameContainer reports whether two entries are for the same container.
func sameContainer(a, b lifecycle.FormerContainer) bool {
	return a.ID == b.ID && a.PodUID == b.PodUID && a.Container == b.Container
}

// compareEntries orders entries by pod UID, container name and container id.
func compareEntries(a, b lifecycle.FormerContainer) int {
	return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.ID, b.ID))
}

// mergeEntry adds the entry row to a list. If the list already has an entry for the same container, mergeEntry instead
// copies into that entry the values that it lacks.
func mergeEntry(all []lifecycle.FormerContainer, row lifecycle.FormerContainer) []lifecycle.FormerContainer {
	i := slices.IndexFunc(all, func(r lifecycle.FormerContainer) bool { return sameContainer(r, row) })
	if i < 0 {
		return append(all, row)
	}
	r := &all[i]
	r.CPUs, r.Mems, r.Class = cmp.Or(r.CPUs, row.CPUs), cmp.Or(r.Mems, row.Mems), cmp.Or(r.Class, row.Class)
	r.Exclusive = r.Exclusive || row.Exclusive
	r.Where += ", " + row.Where
	return all
}

// MatchContainers returns what the other agent a gave to each container of a list, by container id. Several entries of
// a.Containers can match a container. MatchContainers takes the first that exists of: the entry with the container's
// id, the entry with its pod's UID and its name, the entry with only its pod's UID, the entry without any id. It
// returns an error if Trimtab cannot take over from the agent a.System.
func MatchContainers(a *lifecycle.FormerAgent, pods []*lifecycle.Pod, containers []*lifecycle.Container) (map[string]lifecycle.FormerContainer, error) {
	s, err := FindSystem(a.System)
	if err != nil {
		return nil, err
	}
	rows := make(map[lifecycle.FormerContainer]lifecycle.FormerContainer, len(a.Containers))
	for _, row := range a.Containers {
		rows[identifyingFields(row)] = row
	}
	uid := make(map[string]string, len(pods))
	for _, p := range pods {
		if p == nil {
			continue
		}
		uid[p.ID] = p.UID
		if s.parsePod == nil {
			continue
		}
		gave, err := s.parsePod(p)
		if err != nil {
			continue // Trimtab also reads this annotation when it decides about the pod, and then reports the error
		}
		for _, row := range gave {
			rows[identifyingFields(row)] = row
		}
	}
	out := map[string]lifecycle.FormerContainer{}
	for _, c := range containers {
		if c == nil || c.ID == "" || uid[c.PodID] == "" {
			continue
		}
		for _, k := range []lifecycle.FormerContainer{{ID: c.ID}, {PodUID: uid[c.PodID], Container: c.Name}, {PodUID: uid[c.PodID]}, {}} {
			if row, is := rows[k]; is {
				out[c.ID] = row
				break
			}
		}
	}
	return out, nil
}

// identifyingFields returns a copy of the entry r that has only the fields that identify its container.
func identifyingFields(r lifecycle.FormerContainer) lifecycle.FormerContainer {
	if r.ID != "" {
		return lifecycle.FormerContainer{ID: r.ID}
	}
	return lifecycle.FormerContainer{PodUID: r.PodUID, Container: r.Container}
}

// normalizeList checks a list of CPUs or nodes, and returns the list as the kernel writes it.
func normalizeList(text string) (string, error) {
	ids, err := topology.ParseList(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a list of numbers: %w", shorten(text), err)
	}
	return topology.FormatList(ids), nil
}

// decodeJSON decodes JSON. Errors name the line.
func decodeJSON(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if err == nil {
		return nil
	}
	at := int64(len(text))
	if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
		at = e.Offset
	} else if e := (*json.UnmarshalTypeError)(nil); errors.As(err, &e) {
		at = e.Offset
	}
	line := 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
	return fmt.Errorf("line %d: %w", line, jsonwords.Error(err))
}

// shorten cuts a long text, so that it fits in an error message.
func shorten(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
