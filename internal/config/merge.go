package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The sources of values that no document sets: a default, or a flag of the command line.
const (
	SourceDefault = "default"
	SourceFlag    = "flag"
)

// Layer is one document of a configuration that is made of several documents.
type Layer struct {
	// Name identifies the document in messages and as a source of keys: a path, or "ConfigMap NAMESPACE/NAME".
	Name string
	Data []byte // the document's YAML text
	// Version changes when the content of the document changes; "" if the document has no version.
	Version string
	// Shared says that other nodes possibly use the document, too. Such a document must not set the sections cluster
	// and paths and the key placement.policyFile.
	Shared bool
}

// Sources maps a key, by its full path such as hooks.cpuset.enabled, to the name of the layer that set the key. A key
// that is missing in Sources has its default.
type Sources map[string]string

// Of returns the name of the source of a key's value.
func (s Sources) Of(key string) string {
	if from, ok := s[key]; ok {
		return from
	}
	return SourceDefault
}

// fileOnlyKeys lists the keys that a shared layer must not have. Two are sections that the agent reads at its start,
// before it can read shared layers. The other key makes the agent read a file of the node.
func fileOnlyKeys() []string { return []string{"cluster", "paths", "placement.policyFile"} }

// Merge makes one configuration of layers. A later layer overrides the earlier ones. Sections merge key by key, and a
// list or a single value replaces the earlier one. A key that no layer has keeps its default. Merge checks the keys and
// types of each layer. It checks the values of all layers together, because a key may need a key of another layer. It
// returns all problems as one *Error, with layer and line.
func Merge(layers ...Layer) (Config, Sources, error) {
	m := merger{config: Default(), positions: map[string]keyPosition{}}
	for _, l := range layers {
		m.add(l)
	}
	if len(layers) == 0 || m.notMapping {
		return Config{}, nil, errorOf(m.problems)
	}
	m.mergePolicyFile()
	for _, p := range Validate(m.config) {
		at := m.positionOf(p.Path)
		p.File, p.Line = at.layer, at.line
		m.problems = append(m.problems, p)
	}
	if err := errorOf(m.problems); err != nil {
		return Config{}, nil, err
	}
	return m.config, m.sources(), nil
}

// keyPosition is the layer and the line in which a key was set.
type keyPosition struct {
	layer string // the layer's name
	line  int
}

// merger is the state of one Merge.
type merger struct {
	config       Config
	positions    map[string]keyPosition // by path
	problems     []Problem
	notMapping   bool        // a layer is not a mapping of configuration keys, so there are no keys to check
	lastPosition keyPosition // the position of keys that no layer has: the first line of the last layer
}

// chartValuesMessage is the error for a values file of the chart, which has the configuration below the key config.
const chartValuesMessage = "this file looks like a values file of the Helm chart, because it has the key config and lacks apiVersion: " +
	"check a values file with 'helm template trimtab deploy/charts/trimtab -f FILE'"

// add adds a layer that overrides the layers added before.
func (m *merger) add(l Layer) {
	// A document must have apiVersion and kind: these have no default.
	m.config.APIVersion, m.config.Kind = "", ""
	delete(m.positions, "apiVersion")
	delete(m.positions, "kind")
	root, problems := parseDocument(l.Name, l.Data)
	if problems != nil {
		m.problems, m.notMapping = append(m.problems, problems...), true
		return
	}
	if n := valueOfKey(root, "config"); n != nil && n.Kind == yaml.MappingNode && valueOfKey(root, "apiVersion") == nil {
		m.problems, m.notMapping = append(m.problems, Problem{File: l.Name, Line: n.Line, Path: "config", What: chartValuesMessage}), true
		return
	}
	if n := valueOfKey(root, "kind"); n != nil && slices.Contains(convertibleKinds, n.Value) {
		what := fmt.Sprintf("is %q, want %q: 'trimtab config convert FILE' makes a configuration from this document", n.Value, Kind)
		m.problems, m.notMapping = append(m.problems, Problem{File: l.Name, Line: n.Line, Path: "kind", What: what}), true
		return
	}
	d := decoder{file: l.Name, lines: map[string]int{}}
	d.decodeValue(root, reflect.ValueOf(&m.config).Elem(), "")
	m.problems = append(m.problems, d.problems...)
	if root.Kind != yaml.MappingNode {
		m.notMapping = true
		return
	}
	m.lastPosition = keyPosition{l.Name, root.Line}
	m.checkHeader(l.Name, root.Line, d.lines)
	for path, line := range d.lines {
		m.setPosition(path, keyPosition{l.Name, line})
		if l.Shared && slices.Contains(fileOnlyKeys(), path) {
			m.problems = append(m.problems, Problem{
				File: l.Name, Line: line, Path: path, What: "takes effect only in the node's own file; set it there",
			})
		}
	}
}

// checkHeader checks the apiVersion and kind of a layer. It then sets both to valid values, so that the later check of
// the merged configuration does not report the same problems again.
func (m *merger) checkHeader(layer string, line int, lines map[string]int) {
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

// setPosition stores where the key at path was set last. If the key is a list that an earlier layer has set,
// setPosition removes the positions of the elements of the earlier list.
func (m *merger) setPosition(path string, at keyPosition) {
	if !strings.HasSuffix(path, "]") {
		for old, from := range m.positions {
			if strings.HasPrefix(old, path+"[") && from.layer != at.layer {
				delete(m.positions, old)
			}
		}
	}
	m.positions[path] = at
}

// positionOf returns where the key at path was set. If no layer has the key, it returns the position of the nearest
// section that contains the key.
func (m *merger) positionOf(path string) keyPosition {
	for path != "" {
		if at, ok := m.positions[path]; ok {
			return at
		}
		path = parentOf(path)
	}
	return m.lastPosition
}

// sources returns the name of the layer that set each key.
func (m *merger) sources() Sources {
	s := Sources{}
	visitKeys(m.config, func(path string, _ reflect.Value) {
		if at, ok := m.positions[path]; ok {
			s[path] = at.layer
		}
	})
	return s
}

// MarkChanged stores source as the source of each key whose value differs between the configurations before and after.
func (s Sources) MarkChanged(before, after Config, source string) {
	visitKeys(before, func(path string, v reflect.Value) {
		if !reflect.DeepEqual(v.Interface(), valueAt(reflect.ValueOf(after), path)) {
			s[path] = source
		}
	})
}

// Visit calls visit for all keys of a configuration, in the order of docs/config.md, with the key's value as JSON and
// the name of its source.
func (s Sources) Visit(c Config, visit func(key, value, source string)) {
	visitKeys(c, func(path string, v reflect.Value) { visit(path, asJSON(v.Interface()), s.Of(path)) })
}
