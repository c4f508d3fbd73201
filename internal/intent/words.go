package intent

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// text describes a value that a pod requests, for users: lists and maps by their elements, and a struct by those of its
// fields that are set, such as "type RLIMIT_NOFILE, hard 20".
func text[T any](v T) string { return words(reflect.ValueOf(v)) }

func words(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		return words(v.Elem())
	case reflect.Slice, reflect.Array:
		parts, between := make([]string, v.Len()), ", "
		for i := range parts {
			if parts[i] = words(v.Index(i)); strings.Contains(parts[i], between) {
				between = "; "
			}
		}
		return strings.Join(parts, between)
	case reflect.Map:
		var parts []string
		for _, k := range v.MapKeys() {
			parts = append(parts, words(k)+"="+words(v.MapIndex(k)))
		}
		slices.SortFunc(parts, cmp.Compare[string])
		return strings.Join(parts, ", ")
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported() || v.Field(i).IsZero():
			case v.Field(i).Kind() == reflect.Bool:
				parts = append(parts, fieldName(f.Name))
			default:
				parts = append(parts, fieldName(f.Name)+" "+words(v.Field(i)))
			}
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(v.Interface())
}

// fieldName is the name of a struct's field in a text: "CPUs" and "onlyRead", not "OnlyRead".
func fieldName(name string) string {
	r := []rune(name)
	if len(r) > 1 && unicode.IsUpper(r[1]) {
		return name
	}
	r[0] = unicode.ToLower(r[0])
	return string(r)
}
