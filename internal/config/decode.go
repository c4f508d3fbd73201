package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// decoder decodes YAML nodes into a Config. It continues after a problem, to report all problems together. It stores
// the line of every path for later checks.
type decoder struct {
	file       string
	lines      map[string]int // by path
	problems   []Problem
	formerKeys []Problem // keys with their former names, which are still read
}

// decodeDocument decodes a document over the defaults, without a check of values. Both results are nil if data is not a
// YAML document.
func decodeDocument(name string, data []byte) (*Config, *decoder) {
	root, problems := parseDocument(name, data)
	if problems != nil {
		return nil, nil
	}
	c, d := Default(), &decoder{file: name, lines: map[string]int{}}
	d.decodeValue(root, reflect.ValueOf(&c).Elem(), "")
	return &c, d
}

func (d *decoder) problem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Path: path, What: fmt.Sprintf(format, args...)})
}

func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.problem(n.Line, path, "aliases are not supported; write the value out")
		return
	}
	if some, is := v.Addr().Interface().(*anyNode); is {
		some.node = n
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeSection(n, v, path)
	case reflect.Slice:
		d.decodeList(n, v, path)
	default:
		d.decodeScalar(n, v, path)
	}
}

func (d *decoder) decodeSection(n *yaml.Node, v reflect.Value, path string) {
	if isNull(n) && path != "" {
		return // a section with all its keys commented out
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n.Line, path, "want a mapping of keys, got %s", describeNode(n))
		return
	}
	fields, names := fieldsOf(v.Type())
	first := map[string]int{}
	for key, val := range yamlPairs(n) {
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			d.problem(key.Line, path, "want a plain key, got %s", describeNode(key))
			continue
		}
		name := d.newName(v.Type(), path, key)
		at := joinPath(path, name)
		if line, twice := first[name]; twice {
			d.problem(key.Line, at, "duplicate key, first given on line %d", line)
			continue
		}
		first[name] = key.Line
		f, known := fields[name]
		if !known {
			d.problem(key.Line, joinPath(path, printable(key.Value)), "unknown key; %s", suggestKey(path, key.Value, names))
			continue
		}
		d.lines[at] = key.Line
		field := v.FieldByIndex(f.Index)
		d.decodeValue(val, field, at)
		respell(f, field)
	}
}

func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n.Line, path, "want a list, got %s", describeNode(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		if e := out.Index(i); e.Kind() == reflect.Struct {
			fillDefaults(e)
		}
		d.decodeValue(item, out.Index(i), at)
	}
	v.Set(out)
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path string) {
	tag := n.ShortTag()
	scalar := n.Kind == yaml.ScalarNode
	switch k := v.Kind(); {
	case k == reflect.String && scalar && tag == "!!str":
		v.SetString(n.Value)
	case k == reflect.String:
		hint := ""
		if scalar && tag != "!!null" {
			hint = "; write " + strconv.Quote(n.Value) + " in quotes"
		}
		d.problem(n.Line, path, "want a string, got %s%s", describeNode(n), hint)
	case k == reflect.Bool && scalar && tag == "!!bool":
		v.SetBool(n.Value[0] == 't' || n.Value[0] == 'T')
	case k == reflect.Bool:
		d.problem(n.Line, path, "want true or false, got %s", describeNode(n))
	case k == reflect.Int && scalar && tag == "!!int":
		i, err := strconv.ParseInt(n.Value, 10, 32)
		if err != nil {
			d.problem(n.Line, path, "want a plain integer, got %s", describeNode(n))
			return
		}
		v.SetInt(i)
	case k == reflect.Int:
		d.problem(n.Line, path, "want an integer, got %s", describeNode(n))
	default:
		// A Go kind that the decoder does not support. A test finds such fields.
		d.problem(n.Line, path, "keys of kind %s cannot be read", k)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describeNode names the type of a node for messages, and the value of a scalar.
func describeNode(n *yaml.Node) string {
	kinds := map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias"}
	if kind, is := kinds[n.Kind]; is {
		return kind
	}
	scalars := map[string]string{
		"!!str": "the string " + quoteShort(n.Value), "!!int": "the integer " + printable(n.Value), "!!float": "the number " + printable(n.Value),
		"!!bool": "the truth value " + printable(n.Value), "!!null": "nothing", "!!merge": "a merge key",
	}
	return cmp.Or(scalars[n.ShortTag()], "a value of type "+printable(n.ShortTag()))
}

// printable is quoteShort without the quotes.
func printable(s string) string {
	q := quoteShort(s)
	return q[1 : len(q)-1]
}
