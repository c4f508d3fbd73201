// Package chart generates files from the Helm chart and the agent's configuration: the schema of the chart's values,
// and the list of what the agent needs of a node. Its tests run helm on the chart.
package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Dir is the chart's directory in the repository.
const Dir = "deploy/charts/trimtab"

// Needs is the content of the chart's needs.yaml: what the agent needs of a node.
type Needs struct {
	When         map[string]string `json:"when"` // conditions under which the agent needs something: the text of each condition, by its name
	Capabilities []Need            `json:"capabilities"`
	Namespaces   []Need            `json:"namespaces"`
	Paths        []Path            `json:"paths"`
	StartKeys    []string          `json:"startKeys"` // keys or sections of the configuration whose change needs a restart
}

// Need is one thing that the agent needs of a node, such as a capability or a directory.
type Need struct {
	Name   string `json:"name"`
	For    string `json:"for"`    // the condition under which the agent needs the thing: a key of Needs.When
	Reason string `json:"reason"` // why the agent needs the thing
	// MessageWithout is a part of the message that users see if the node does not give the agent the thing. Test is the
	// test that checks this message: the directory of a package and a test's name, such as "test/vm/hooks TestNeeds".
	MessageWithout string `json:"without"`
	Test           string `json:"shown"`
}

// Path is a file or directory of the node that the chart mounts into the agent's container.
type Path struct {
	Need    `json:",inline"`
	Key     string `json:"key"`     // the key of the agent's configuration that has the path
	Default string `json:"default"` // the path if the key is not set
	// Defaults are the default values of a key that is a list of paths. Each path of the list is a mount.
	Defaults     []string `json:"defaults"`
	MountsParent bool     `json:"above"` // the chart mounts the parent directory
	MountPath    string   `json:"at"`    // the path in the container, if it differs from the node's
	Write        bool     `json:"write"` // the agent also writes to the path
	Type         string   `json:"type"`  // type of the hostPath volume
}

// MountedPaths returns the paths of the node that the chart mounts with the agent's default configuration.
func (p Path) MountedPaths() []string {
	if len(p.Defaults) > 0 {
		return p.Defaults
	}
	path := strings.TrimPrefix(p.Default, "unix://")
	if p.MountsParent {
		path = filepath.Dir(path)
	}
	return []string{path}
}

// VolumeNames returns the names of the chart's volumes, one for each path that MountedPaths returns.
func (p Path) VolumeNames() []string {
	names := []string{p.Name}
	for i := 1; i < len(p.Defaults); i++ {
		names = append(names, fmt.Sprintf("%s-%d", p.Name, i))
	}
	return names
}

// All returns all needs: the capabilities, the namespaces and the paths.
func (n Needs) All() []Need {
	all := append(append([]Need{}, n.Capabilities...), n.Namespaces...)
	for _, p := range n.Paths {
		all = append(all, p.Need)
	}
	return all
}

// ReadNeeds reads needs.yaml of the chart in the repository at root. It returns an error for an unknown key, for a need
// whose condition is unknown, and for a need without a reason, a message or a test.
func ReadNeeds(root string) (Needs, error) {
	var n Needs
	data, err := os.ReadFile(filepath.Join(root, Dir, "needs.yaml"))
	if err != nil {
		return n, err
	}
	if err := yaml.UnmarshalStrict(data, &n); err != nil {
		return n, err
	}
	for _, need := range n.All() {
		switch {
		case n.When[need.For] == "" || need.Reason == "":
			return n, fmt.Errorf("needs.yaml: %q has no reason, or its \"for\" %q is not a key of \"when\"", need.Name, need.For)
		case need.MessageWithout == "" || need.Test == "":
			return n, fmt.Errorf("needs.yaml: %q must have \"without\" (the message that users see without the need) and \"shown\" (the test of this message)", need.Name)
		}
	}
	return n, nil
}

// Table returns the needs as Markdown lists, in lines of at most 120 bytes.
func (n Needs) Table() string {
	var b strings.Builder
	write := func(title string, lines []string) {
		fmt.Fprintf(&b, "%s\n\n", title)
		for _, line := range lines {
			b.WriteString(wrap("* "+line, 120))
		}
		b.WriteString("\n")
	}
	write("Capabilities (all others are dropped):", n.list(n.Capabilities))
	write("Namespaces of the host:", n.list(n.Namespaces))
	var lines []string
	for _, p := range n.Paths {
		access := "read only"
		if p.Write {
			access = "read and write"
		}
		at := ""
		if p.MountPath != "" {
			at = ", mounted at `" + p.MountPath + "`"
		}
		line := fmt.Sprintf("`%s` (of `%s`), %s%s; %s: %s", strings.Join(p.MountedPaths(), "`, `"), p.Key, access, at, n.When[p.For], p.Reason)
		lines = append(lines, line+p.expectedMessage())
	}
	write("Directories of the node:", lines)
	return strings.TrimSuffix(b.String(), "\n")
}

// list returns one list item for each need, without the "* " at its beginning.
func (n Needs) list(needs []Need) []string {
	lines := make([]string, 0, len(needs))
	for _, need := range needs {
		lines = append(lines, fmt.Sprintf("`%s`; %s: %s", need.Name, n.When[need.For], need.Reason)+need.expectedMessage())
	}
	return lines
}

// expectedMessage returns the end of a list item: the message that users see without the need, and the test that checks
// this message.
func (n Need) expectedMessage() string {
	return fmt.Sprintf("; without it: %q (`%s`)", n.MessageWithout, n.Test)
}

// wrap breaks a list item into lines of at most width bytes.
func wrap(text string, width int) string {
	var b strings.Builder
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			b.WriteString(line + "\n")
			line = "  " + word
		default:
			line += " " + word
		}
	}
	return b.String() + line + "\n"
}
