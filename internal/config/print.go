package config

import (
	"bytes"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Print returns a configuration as a YAML file, with keys in the order of the docs. Parse reads it back to the same
// configuration.
func Print(c Config) []byte {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	// Encoding nodes that we made into memory cannot fail.
	_ = enc.Encode(node(reflect.ValueOf(c)))
	_ = enc.Close()
	return b.Bytes()
}

func node(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for f, fv := range v.Fields() {
			key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.Tag.Get("json")}
			n.Content = append(n.Content, key, node(fv))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		if isSections(v.Type()) && v.Len() > 0 {
			n.Style = 0 // one section below the other
		}
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i)))
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
