package scenario

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/trimtab/trimtab/internal/nearest"
)

// unknownField matches the error of sigs.k8s.io/json for an unknown key, with the key's path.
var unknownField = regexp.MustCompile(`^unknown field "(.+)"$`)

// addNearestKey adds the most similar valid key to an error about an unknown key. into is the value into which the JSON
// was decoded.
func addNearestKey(err error, into any) error {
	found := unknownField.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	path := strings.Split(found[1], ".")
	last := len(path) - 1
	if near, _ := nearest.Word(path[last], keysAt(reflect.TypeOf(into), path[:last])); near != "" {
		return fmt.Errorf("%w; nearest valid key %q", err, strings.Join(append(path[:last:last], near), "."))
	}
	return err
}

// keysAt returns the valid JSON keys at a path such as steps[0].run[1] in a value of type t.
func keysAt(t reflect.Type, path []string) (keys []string) {
	for _, part := range path {
		name, _, _ := strings.Cut(part, "[")
		f, ok := fieldByKey(elementType(t), name)
		if !ok {
			return nil
		}
		t = f.Type
	}
	if t = elementType(t); t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		if key := jsonKey(f); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// elementType returns the element type of a pointer, slice or map type, and any other type unchanged.
func elementType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// fieldByKey returns the field of a struct type that has a JSON key.
func fieldByKey(t reflect.Type, key string) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	for _, f := range reflect.VisibleFields(t) {
		if jsonKey(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// jsonKey returns the JSON key of a field; "" if the field has none.
func jsonKey(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if key == "-" {
		return ""
	}
	return key
}
