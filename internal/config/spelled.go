package config

import (
	"reflect"
	"slices"
	"strings"
)

// also returns the further spellings of a key's values, from the tag also of its field: the value with a capital
// letter, as Kubernetes writes its own.
func also(f reflect.StructField) []string {
	if tag, ok := f.Tag.Lookup("also"); ok {
		return strings.Split(tag, "|")
	}
	return nil
}

// respell replaces a second spelling of a value by the usual one.
func respell(f reflect.StructField, v reflect.Value) {
	if further := also(f); further != nil && slices.Contains(further, v.String()) {
		v.SetString(strings.ToLower(v.String()))
	}
}
