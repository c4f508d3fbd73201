package intent

import (
	"errors"
	"fmt"
	"strings"
)

// CPUVariable is an environment variable that tells a container its CPUs.
type CPUVariable struct {
	Name string
	// List means that the value of the variable is the list of the CPUs that the container owns. If List is false, the
	// value is the number of CPUs that the container can use.
	List bool
}

// CPUVariables are the variables that a pod requests.
type CPUVariables struct {
	Variables []CPUVariable
	// Defaults means that the pod requests the variables of the node's configuration.
	Defaults bool
}

// Limits for the variables that a pod requests.
const (
	maxVariables    = 16
	maxVariableName = 64
)

// ParseCPUVariable parses NAME=count, NAME=list, or NAME, which means NAME=count.
func ParseCPUVariable(text string) (CPUVariable, error) {
	name, what, hasKind := strings.Cut(text, "=")
	v := CPUVariable{Name: name, List: what == "list"}
	switch {
	case name == "" || len(name) > maxVariableName || strings.Trim(name, asciiAlphanumerics+"_") != "" || name[0] >= '0' && name[0] <= '9':
		return v, fmt.Errorf("%q is not the name of a variable: want at most %d letters, digits and underscores, and no digit first", printable(name), maxVariableName)
	case hasKind && what != "count" && what != "list":
		return v, fmt.Errorf("%q does not say what the variable contains: want %s=count or %s=list", printable(text), name, name)
	}
	return v, nil
}

// readCPUEnv reads "true", "false", or variables separated by commas.
func readCPUEnv(t *podTexts, out *Pod) {
	text := t.annotation(TrimtabCPUEnv)
	switch text {
	case "", "false":
		return
	case "true":
		out.CPUEnv = Sourced[CPUVariables]{CPUVariables{Defaults: true}, TrimtabCPUEnv}
		return
	}
	all, err := parseCPUVariables(text)
	if err != nil {
		out.reportMalformed(TrimtabCPUEnv, text, `%v; want "true", or variables such as GOMAXPROCS=count,MY_CPUS=list`, err)
		return
	}
	out.CPUEnv = Sourced[CPUVariables]{CPUVariables{Variables: all}, TrimtabCPUEnv}
}

// parseCPUVariables parses a list of variables that are separated by commas. A name must not occur twice.
func parseCPUVariables(text string) ([]CPUVariable, error) {
	items := strings.Split(text, ",")
	if len(items) > maxVariables {
		return nil, fmt.Errorf("has %d variables; a pod can request at most %d", len(items), maxVariables)
	}
	all := make([]CPUVariable, 0, len(items))
	seen := map[string]bool{}
	for _, item := range items {
		v, err := ParseCPUVariable(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		if seen[v.Name] {
			return nil, errors.New(v.Name + " is named twice")
		}
		seen[v.Name] = true
		all = append(all, v)
	}
	return all, nil
}

// String returns the variables in the form of the annotation.
func (v CPUVariables) String() string {
	if v.Defaults {
		return "true"
	}
	names := make([]string, len(v.Variables))
	for i, one := range v.Variables {
		if names[i] = one.Name + "=count"; one.List {
			names[i] = one.Name + "=list"
		}
	}
	return strings.Join(names, ",")
}
