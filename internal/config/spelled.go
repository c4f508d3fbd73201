package config

import (
	"reflect"
	"slices"
	"strings"
)

// otherSpellings returns the other spellings of a key's values, from the tag "also" of the key's field. Other spellings
// begin with a capital letter, like values in Kubernetes.
func otherSpellings(f reflect.StructField) []string {
	if tag, ok := f.Tag.Lookup("also"); ok {
		return strings.Split(tag, "|")
	}
	return nil
}

// respell replaces another spelling of a value by the usual spelling, which has only lower-case letters.
func respell(f reflect.StructField, v reflect.Value) {
	if further := otherSpellings(f); further != nil && slices.Contains(further, v.String()) {
		v.SetString(strings.ToLower(v.String()))
	}
}
