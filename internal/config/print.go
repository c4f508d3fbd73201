package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Print returns a configuration as a YAML file that Parse reads back to the
// same, keys in the order of the docs.
func Print(c Config) []byte {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	// Encoding into memory from nodes made here has nothing to fail on.
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
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	default:
		return text(fmt.Sprint(v.Interface()))
	}
}

// text quotes what would otherwise read as something else, or as nothing.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	plain := yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if s == "" || plain.ShortTag() != "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
