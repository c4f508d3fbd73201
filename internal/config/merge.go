package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The names of sources that are not layers.
const (
	SourceDefault = "default"
	SourceFlag    = "flag"
)

// Layer is one document of a configuration that is made of several.
type Layer struct {
	// Name identifies the document in messages and as a source of keys: a path, or "ConfigMap NAMESPACE/NAME".
	Name string
	Data []byte
	// Version distinguishes one content of the document from another; "" if nobody counts versions.
	Version string
	// Shared says that the document is for more than this machine. Keys that say how
	// the agent finds the shared documents, and the copy of them, are refused there.
	Shared bool
}

// Sources has for each key that a layer set (its full path, such as hooks.cpuset.enabled) the name of that layer.
// Missing keys have their default.
type Sources map[string]string

// Of returns the source of a key.
func (s Sources) Of(key string) string {
	if from, ok := s[key]; ok {
		return from
	}
	return SourceDefault
}

// fileOnly lists the keys that a shared layer must not have: sections that the agent reads at its start before it can
// read shared layers, and a key that makes the agent read a file of the node.
func fileOnly() []string { return []string{"cluster", "paths", "placement.policyFile"} }

// Merge makes one configuration of layers. A later layer overrides the earlier ones.
// Sections merge key by key, and a list or a single value replaces the earlier one. A
// key that no layer has keeps its default. The keys and types of each layer are checked
// as strictly as those of a file. The values are checked together, since a key may need
// another key that is in another layer. All problems are returned as one *Error, which
// names layer and line.
func Merge(layers ...Layer) (Config, Sources, error) {
	m := merging{config: Default(), set: map[string]place{}}
	for _, l := range layers {
		m.add(l)
	}
	if len(layers) == 0 || m.notMapping {
		return Config{}, nil, refuse(m.problems)
	}
	m.policyFile()
	for _, p := range Validate(m.config) {
		at := m.placeOf(p.Path)
		p.File, p.Line = at.layer, at.line
		m.problems = append(m.problems, p)
	}
	if err := refuse(m.problems); err != nil {
		return Config{}, nil, err
	}
	return m.config, m.sources(), nil
}

// place is where a key was set.
type place struct {
	layer string
	line  int
}

// merging is the state of one Merge.
type merging struct {
	config     Config
	set        map[string]place
	problems   []Problem
	notMapping bool // a layer is not a mapping of configuration keys, so there are no keys to check
	last       place
}

// chartValues is the message about a file whose configuration is below a key.
const chartValues = "a configuration begins with apiVersion and kind, and this looks like a values file of the chart, " +
	"whose configuration is below config: 'helm template trimtab deploy/charts/trimtab -f FILE' checks it"

// add adds a layer above the earlier ones.
func (m *merging) add(l Layer) {
	// A document must have apiVersion and kind: these have no default.
	m.config.APIVersion, m.config.Kind = "", ""
	delete(m.set, "apiVersion")
	delete(m.set, "kind")
	root, problems := document(l.Name, l.Data)
	if problems != nil {
		m.problems, m.notMapping = append(m.problems, problems...), true
		return
	}
	if n := keyOf(root, "config"); n != nil && n.Kind == yaml.MappingNode && keyOf(root, "apiVersion") == nil {
		m.problems, m.notMapping = append(m.problems, Problem{File: l.Name, Line: n.Line, Path: "config", What: chartValues}), true
		return
	}
	if n := keyOf(root, "kind"); n != nil && slices.Contains(convertible, n.Value) {
		what := fmt.Sprintf("is %q, want %q: run 'trimtab config convert FILE' first, which makes a configuration of it", n.Value, Kind)
		m.problems, m.notMapping = append(m.problems, Problem{File: l.Name, Line: n.Line, Path: "kind", What: what}), true
		return
	}
	d := decoder{file: l.Name, lines: map[string]int{}}
	d.value(root, reflect.ValueOf(&m.config).Elem(), "")
	m.problems = append(m.problems, d.problems...)
	if root.Kind != yaml.MappingNode {
		m.notMapping = true
		return
	}
	m.last = place{l.Name, root.Line}
	m.header(l.Name, root.Line, d.lines)
	for path, line := range d.lines {
		m.replace(path, place{l.Name, line})
		if l.Shared && slices.Contains(fileOnly(), path) {
			m.problems = append(m.problems, Problem{
				File: l.Name, Line: line, Path: path, What: "takes effect only in the node's own file; set it there",
			})
		}
	}
}

// header checks the apiVersion and kind of a layer. It then sets both to their valid values, so that Merge does not
// report the same problems again.
func (m *merging) header(layer string, line int, lines map[string]int) {
	for _, p := range Validate(Config{APIVersion: m.config.APIVersion, Kind: m.config.Kind}) {
		if p.Path != "apiVersion" && p.Path != "kind" {
			continue
		}
		p.File, p.Line = layer, line
		if at, ok := lines[p.Path]; ok {
			p.Line = at
		}
		m.problems = append(m.problems, p)
	}
	m.config.APIVersion, m.config.Kind = APIVersion, Kind
}

// replace notes where a key was set last. For a list that is set again, it removes the places of the earlier list.
func (m *merging) replace(path string, at place) {
	if !strings.HasSuffix(path, "]") {
		for old, from := range m.set {
			if strings.HasPrefix(old, path+"[") && from.layer != at.layer {
				delete(m.set, old)
			}
		}
	}
	m.set[path] = at
}

// placeOf returns where a path was set, or the nearest section above it.
func (m *merging) placeOf(path string) place {
	for path != "" {
		if at, ok := m.set[path]; ok {
			return at
		}
		path = parentOf(path)
	}
	return m.last
}

// sources returns the layers of the keys that have values.
func (m *merging) sources() Sources {
	s := Sources{}
	visitKeys(m.config, func(path string, _ reflect.Value) {
		if at, ok := m.set[path]; ok {
			s[path] = at.layer
		}
	})
	return s
}

// MarkChanged marks the keys in which two configurations differ as set by a source.
func (s Sources) MarkChanged(before, after Config, source string) {
	visitKeys(before, func(path string, v reflect.Value) {
		if !reflect.DeepEqual(v.Interface(), valueAt(reflect.ValueOf(after), path)) {
			s[path] = source
		}
	})
}

// Visit visits all keys of a configuration in the order of the docs, each with its value as JSON and its source.
func (s Sources) Visit(c Config, visit func(key, value, source string)) {
	visitKeys(c, func(path string, v reflect.Value) { visit(path, asJSON(v.Interface()), s.Of(path)) })
}
