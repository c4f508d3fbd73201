package rulestest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/jsonwords"
)

// Kind is the kind of a file with tests.
const Kind = "RulesTest"

// ErrKind is the error for a file that is not a file of tests.
var ErrKind = errors.New("want apiVersion: " + config.APIVersion + " and kind: " + Kind)

// MaxSize is the largest file of tests, in bytes.
const MaxSize = 1 << 20

// File is a file of tests.
type File struct {
	Config config.Config // a configuration that has the rules
	Cases  []Case
	// NamespaceLabels are the labels of namespaces, by name.
	NamespaceLabels map[string]map[string]string
}

// Case is one test: a pod, and the expected effect of rules on one of its containers.
type Case struct {
	Name string `json:"name"`
	// Pod is a Pod as kubectl prints it; apiVersion and kind may be missing.
	Pod json.RawMessage `json:"pod"`
	// Container is the name of the tested container. It may be empty if the pod has only one container.
	Container string `json:"container"`
	Want      Want   `json:"want"`
}

// Want is the expected result. Missing fields are not compared, with one exception: if Refused is missing, the rules
// must not refuse the container.
type Want struct {
	// Matched are the names of the rules that match, in the order of the rules.
	Matched *[]string `json:"matched"`
	// Set are all values of the container, by field and key such as "env GOMAXPROCS".
	Set *map[string]string `json:"set"`
	// SetPod are all values of the pod's own cgroup, by field and key.
	SetPod *map[string]string `json:"setPod"`
	// Class, Pool and NUMA are what the pod requests after all rules have changed its requests. The parts of NUMA have
	// this order: bind, count, nodes, exclusive, even, wholeCores, bySocket, alone.
	Class *string `json:"class"`
	Pool  *string `json:"pool"`
	NUMA  *string `json:"numa"` // for example "bind nodes=0-1 even", in the order of the keys of rules
	// Refused is a part of the message with which the rules refuse the container.
	Refused string `json:"refused"`
	// Problems has one text for each reported problem: a part of the problem's reason.
	Problems *[]string `json:"problems"`
}

// document is a file of tests in the form in which it is written.
type document struct {
	APIVersion      string                       `json:"apiVersion"`
	Kind            string                       `json:"kind"`
	Config          string                       `json:"config"` // the path of a configuration that has the rules; "" if Rules has them
	Rules           json.RawMessage              `json:"rules"`
	NamespaceLabels map[string]map[string]string `json:"namespaceLabels"`
	Cases           []Case                       `json:"cases"`
}

// Parse reads a file of tests. If the file has a key config, its value is the path of a configuration with the rules,
// which Parse reads with the function load. Otherwise the rules are in the file of tests. Errors in rules have lines
// and columns.
func Parse(name string, text []byte, load func(path string) (config.Config, error)) (*File, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%s: is larger than %d bytes", name, MaxSize)
	}
	var d document
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(text, &head); err == nil && (head.APIVersion != config.APIVersion || head.Kind != Kind) {
		return nil, fmt.Errorf("%s: %w", name, ErrKind)
	}
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", name, jsonwords.Error(err))
	}
	switch {
	case (d.Config == "") == (len(d.Rules) == 0):
		return nil, fmt.Errorf("%s: give either rules, or config with the path of a configuration file", name)
	case len(d.Cases) == 0:
		return nil, fmt.Errorf("%s: has no cases", name)
	}
	f := &File{Cases: d.Cases, NamespaceLabels: d.NamespaceLabels}
	var err error
	if d.Config != "" {
		f.Config, err = load(d.Config)
	} else {
		f.Config, err = parseRules(name, text)
	}
	if err != nil {
		return nil, err
	}
	return f, f.check(name)
}

// check returns the errors in the cases. The parameter name is the name of the file.
func (f *File) check(name string) error {
	seen := map[string]bool{}
	var errs []error
	for i, c := range f.Cases {
		switch {
		case c.Name == "" || strings.ContainsAny(c.Name, "\n\x1b"):
			errs = append(errs, fmt.Errorf("%s: cases[%d].name: want a name of one line", name, i))
		case seen[c.Name]:
			errs = append(errs, fmt.Errorf("%s: cases[%d].name: %q is the name of another case", name, i, c.Name))
		}
		seen[c.Name] = true
		if c.Want == (Want{}) {
			errs = append(errs, fmt.Errorf("%s: cases[%d].want: is empty; give matched, set, setPod, class, pool, numa, refused or problems", name, i))
		}
	}
	return errors.Join(errs...)
}

// parseRules parses the rules in a file of tests as a configuration. Before that, it removes the text of all lines that
// are not about rules, but keeps the empty lines. So errors have the line numbers of the file.
func parseRules(name string, text []byte) (config.Config, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return config.Config{}, fmt.Errorf("%s: is not valid YAML: %w", name, err)
	}
	if len(root.Content) != 1 {
		return config.Config{}, fmt.Errorf("%s: is empty", name)
	}
	top := root.Content[0]
	if top.Kind != yamlv3.MappingNode || top.Style&yamlv3.FlowStyle != 0 {
		return config.Config{}, fmt.Errorf("%s: want each top-level key of the file on lines of its own", name)
	}
	lines := bytes.Split(text, []byte("\n"))
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, end := top.Content[i], len(lines)+1
		if i+2 < len(top.Content) {
			end = top.Content[i+2].Line
		}
		switch key.Value {
		case "apiVersion", "rules":
		case "kind":
			lines[key.Line-1] = []byte("kind: " + config.Kind)
		default:
			for n := key.Line; n < end; n++ {
				lines[n-1] = nil
			}
		}
	}
	// Rules that read labels of namespaces are valid only with this key. The tests take the labels from the file.
	lines = append(lines, []byte("cluster: {enabled: true}"))
	return config.Parse(name, bytes.Join(lines, []byte("\n")))
}
