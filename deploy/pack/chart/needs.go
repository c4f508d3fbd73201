// Package chart makes what follows from the Helm chart and from the agent's configuration: the schema of the chart's
// values, and the table of what the agent needs of a node. Its tests run helm on the chart.
package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Dir is the chart's place below the repository's root.
const Dir = "deploy/charts/trimtab"

// Needs is what the agent needs of a node, as needs.yaml of the chart has it.
type Needs struct {
	When         map[string]string `json:"when"`
	Capabilities []Need            `json:"capabilities"`
	Namespaces   []Need            `json:"namespaces"`
	Paths        []Path            `json:"paths"`
	StartKeys    []string          `json:"startKeys"` // of the configuration, or sections, that only a start reads
}

// Need is one thing, when it is needed (a name in When), why, and what the agent says without it: a test takes it away.
type Need struct {
	Name    string `json:"name"`
	For     string `json:"for"`
	Reason  string `json:"reason"`
	Without string `json:"without"`
}

// Path is a file or directory of the node that is mounted.
type Path struct {
	Need    `json:",inline"`
	Key     string `json:"key"`     // of the agent's configuration, which names it
	Default string `json:"default"` // where that says nothing
	Above   bool   `json:"above"`   // the directory above it is mounted
	At      string `json:"at"`      // where, if not at the same path
	Write   bool   `json:"write"`
	Type    string `json:"type"` // as of a hostPath volume
}

// Mounted is the path on a node whose configuration says nothing of it.
func (p Path) Mounted() string {
	path := strings.TrimPrefix(p.Default, "unix://")
	if p.Above {
		path = filepath.Dir(path)
	}
	return path
}

// ReadNeeds reads needs.yaml of the chart in the repository at root. What it does not know there is an error, and so is
// a need without a reason.
func ReadNeeds(root string) (Needs, error) {
	var n Needs
	data, err := os.ReadFile(filepath.Join(root, Dir, "needs.yaml"))
	if err != nil {
		return n, err
	}
	if err := yaml.UnmarshalStrict(data, &n); err != nil {
		return n, err
	}
	all := append(append([]Need{}, n.Capabilities...), n.Namespaces...)
	for _, p := range n.Paths {
		all = append(all, p.Need)
	}
	for _, need := range all {
		if n.When[need.For] == "" || need.Reason == "" {
			return n, fmt.Errorf("needs.yaml: %q lacks a reason, or %q is none of \"when\"", need.Name, need.For)
		}
	}
	for _, c := range n.Capabilities {
		if c.Without == "" {
			return n, fmt.Errorf("needs.yaml: nothing says what the kernel refuses without the capability %s (\"without\")", c.Name)
		}
	}
	return n, nil
}

// Table is the needs as lists for people, in Markdown without lines above 120 columns.
func (n Needs) Table() string {
	var b strings.Builder
	write := func(title string, lines []string) {
		fmt.Fprintf(&b, "%s\n\n", title)
		for _, line := range lines {
			b.WriteString(wrap("* "+line, 120))
		}
		b.WriteString("\n")
	}
	write("Capabilities, beside which all are dropped:", n.list(n.Capabilities))
	write("Namespaces of the host:", n.list(n.Namespaces))
	var lines []string
	for _, p := range n.Paths {
		access := "read only"
		if p.Write {
			access = "read and write"
		}
		at := ""
		if p.At != "" {
			at = ", mounted at `" + p.At + "`"
		}
		line := fmt.Sprintf("`%s` (of `%s`), %s%s; %s: %s", p.Mounted(), p.Key, access, at, n.When[p.For], p.Reason)
		lines = append(lines, line+p.said())
	}
	write("Directories of the node:", lines)
	return strings.TrimSuffix(b.String(), "\n")
}

func (n Needs) list(needs []Need) []string {
	lines := make([]string, 0, len(needs))
	for _, need := range needs {
		lines = append(lines, fmt.Sprintf("`%s`; %s: %s", need.Name, n.When[need.For], need.Reason)+need.said())
	}
	return lines
}

// said is what the agent says where it lacks it; "" where no test shows that.
func (n Need) said() string {
	if n.Without == "" {
		return ""
	}
	return fmt.Sprintf("; without it the agent says %q", n.Without)
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
