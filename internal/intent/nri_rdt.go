package intent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// closID reads the name of a resctrl group.
func (t *podTexts) closID(key string) (string, error) {
	name, err := t.required(key)
	if err != nil {
		return "", err
	}
	if !IsClosID(name) {
		return "", fmt.Errorf("%q is not the name of a resctrl group", printable(name))
	}
	return name, nil
}

// IsClosID reports whether a text can name a resctrl group. A name of one of the kernel's own files in resctrl is not
// valid.
func IsClosID(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, asciiAlphanumerics+"-_.") == "" && name[0] != '.' && name[0] != '-' &&
		!slices.Contains([]string{"info", "mon_groups", "mon_data", "schemata", "cpus", "cpus_list", "tasks", "mode", "size"}, name)
}

// maxSchemata limits the lines of schemata.
const maxSchemata = 16

// schemaPattern matches a line of schemata, as in Linux, Documentation/arch/x86/resctrl.rst.
var schemaPattern = regexp.MustCompile(`^(L2|L3|L2CODE|L2DATA|L3CODE|L3DATA|MB|SMBA):[0-9]{1,3}=[0-9a-fA-F]{1,16}(;[0-9]{1,3}=[0-9a-fA-F]{1,16})*$`)

// IsSchemaLine reports whether a text is a line of schemata.
func IsSchemaLine(line string) bool { return len(line) <= 512 && schemaPattern.MatchString(line) }

// schemata reads lines of schemata, separated by commas.
func (t *podTexts) schemata(key string) ([]string, error) {
	text, err := t.required(key)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(text, ",")
	if len(lines) > maxSchemata {
		return nil, fmt.Errorf("has more than %d lines of schemata", maxSchemata)
	}
	for i := range lines {
		if lines[i] = strings.TrimSpace(lines[i]); !IsSchemaLine(lines[i]) {
			return nil, fmt.Errorf("%q is not a line of schemata, such as L3:0=f;1=f", printable(lines[i]))
		}
	}
	return lines, nil
}
