package config

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// decoder decodes YAML nodes into a Config. It continues after a problem, to report all problems together. It stores
// the line of every key for later checks.
type decoder struct {
	file       string         // the name of the file, for messages
	lines      map[string]int // the line of each key, by its path, such as pools.reserved
	problems   []Problem
	formerKeys []Problem // keys that the document has by their former names
}

// decodeDocument decodes a document. Keys that the document lacks get their defaults. The values are not checked. Both
// results are nil if data is not a YAML document.
func decodeDocument(name string, data []byte) (*Config, *decoder) {
	root, problems := parseDocument(name, data)
	if problems != nil {
		return nil, nil
	}
	c, d := Default(), &decoder{file: name, lines: map[string]int{}}
	d.decodeValue(root, reflect.ValueOf(&c).Elem(), "")
	return &c, d
}

// addProblem adds a problem of the key at path.
func (d *decoder) addProblem(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Path: path, What: fmt.Sprintf(format, args...)})
}

// decodeValue decodes a node of any kind into v, which is the value of the key at path.
func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.addProblem(n.Line, path, "YAML aliases are not supported: write the value itself")
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

// decodeSection decodes a mapping into the struct v. It reports unknown and duplicate keys.
func (d *decoder) decodeSection(n *yaml.Node, v reflect.Value, path string) {
	if isNull(n) && path != "" {
		return // all keys of the section are commented out
	}
	if n.Kind != yaml.MappingNode {
		d.addProblem(n.Line, path, "want a mapping of keys, got %s", describeNode(n))
		return
	}
	fields, names := fieldsOf(v.Type())
	first := map[string]int{}
	for key, val := range yamlPairs(n) {
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			d.addProblem(key.Line, path, "want a plain key, got %s", describeNode(key))
			continue
		}
		name := d.newName(v.Type(), path, key)
		at := joinPath(path, name)
		if line, twice := first[name]; twice {
			d.addProblem(key.Line, at, "duplicate key, first given on line %d", line)
			continue
		}
		first[name] = key.Line
		f, known := fields[name]
		if !known {
			d.addProblem(key.Line, joinPath(path, printable(key.Value)), "unknown key; %s", suggestKey(path, key.Value, names))
			continue
		}
		d.lines[at] = key.Line
		field := v.FieldByIndex(f.Index)
		d.decodeValue(val, field, at)
		respell(f, field)
	}
}

// decodeList decodes a sequence into the slice v.
func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.addProblem(n.Line, path, "want a list, got %s", describeNode(n))
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

// decodeScalar decodes a string, bool or integer into v.
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
		d.addProblem(n.Line, path, "want a string, got %s%s", describeNode(n), hint)
	case k == reflect.Bool && scalar && tag == "!!bool":
		v.SetBool(n.Value[0] == 't' || n.Value[0] == 'T')
	case k == reflect.Bool:
		d.addProblem(n.Line, path, "want true or false, got %s", describeNode(n))
	case k == reflect.Int && scalar && tag == "!!int":
		i, err := strconv.ParseInt(n.Value, 10, 32)
		if err != nil {
			d.addProblem(n.Line, path, "want a plain integer, got %s", describeNode(n))
			return
		}
		v.SetInt(i)
	case k == reflect.Int:
		d.addProblem(n.Line, path, "want an integer, got %s", describeNode(n))
	default:
		// The decoder does not support this Go kind. A test finds such fields.
		d.addProblem(n.Line, path, "keys of kind %s cannot be read", k)
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
		"!!bool": "the boolean " + printable(n.Value), "!!null": "nothing", "!!merge": "a merge key",
	}
	return cmp.Or(scalars[n.ShortTag()], "a value of type "+printable(n.ShortTag()))
}

// printable shortens text of a document and escapes characters that cannot be printed. Unlike quoteShort, it adds no
// quotes.
func printable(s string) string {
	q := quoteShort(s)
	return q[1 : len(q)-1]
}
