package config

import (
	"bytes"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Print returns a configuration as a YAML file, with keys in the order of the docs. Parse reads it back to the same
// configuration.
func Print(c Config) []byte { return encodeYAML(yamlNode(reflect.ValueOf(c), reflect.Value{})) }

// encodeYAML returns a YAML node as text. The node must be made by this package.
func encodeYAML(n *yaml.Node) []byte {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	_ = enc.Encode(n) // no error: b is in memory
	_ = enc.Close()
	return b.Bytes()
}

// yamlNode makes the node of a value. The node of a section has only the keys whose values differ from the values in
// base. If base is the zero reflect.Value, the node has all keys.
func yamlNode(v, base reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		return sectionNode(v, base)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		if isSectionList(v.Type()) && v.Len() > 0 {
			n.Style = 0 // one section below the other
		}
		var unset reflect.Value
		if base.IsValid() && isSectionList(v.Type()) {
			unset = reflect.New(v.Type().Elem()).Elem()
			fillDefaults(unset)
		}
		for i := range v.Len() {
			n.Content = append(n.Content, yamlNode(v.Index(i), unset))
		}
		return n
	}
	tag := "!!str" // the encoder quotes text that would otherwise have another type
	switch v.Kind() {
	case reflect.Bool:
		tag = "!!bool"
	case reflect.Int:
		tag = "!!int"
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: fmt.Sprint(v.Interface())}
}

// sectionNode makes the node of a section, with the keys whose values differ from the values in base.
func sectionNode(v, base reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for f, fv := range v.Fields() {
		var was reflect.Value
		if base.IsValid() {
			was = base.FieldByName(f.Name)
			if reflect.DeepEqual(fv.Interface(), was.Interface()) || fv.Kind() == reflect.Slice && fv.Len() == 0 && was.Len() == 0 {
				continue
			}
		}
		n.Content = append(n.Content, textNode(f.Tag.Get("json")), yamlNode(fv, was))
	}
	return n
}

// textNode makes the node of a string.
func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}
