package intent

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// maxWords is from how many bytes on a description stops: it is cut for users (Printable), and a hostile pod can have
// thousands of parts.
const maxWords = 512

// text describes a value that a pod requests, for users: lists and maps by their elements, and a struct by those of its
// fields that are set, such as "type RLIMIT_NOFILE, hard 20".
func text[T any](v T) string {
	if m, ok := any(v).(map[string]string); ok { // frequent, and reflection would make thousands of values
		var all words
		for _, k := range sortedKeys(m) {
			if !all.add(k + "=" + m[k]) {
				break
			}
		}
		return all.String()
	}
	return describe(reflect.ValueOf(v))
}

// words are the parts of a description.
type words struct {
	parts []string
	size  int
}

// add adds a part, and reports whether there is room for more.
func (w *words) add(part string) bool {
	w.parts = append(w.parts, part)
	w.size += len(part)
	return w.size < maxWords
}

// String joins the parts. Parts that have commas themselves are separated by semicolons.
func (w *words) String() string {
	if slices.ContainsFunc(w.parts, func(p string) bool { return strings.Contains(p, ", ") }) {
		return strings.Join(w.parts, "; ")
	}
	return strings.Join(w.parts, ", ")
}

func describe(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	var all words
	switch v.Kind() {
	case reflect.Pointer:
		return describe(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if !all.add(describe(v.Index(i))) {
				break
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(describe(a), describe(b)) })
		for _, k := range keys {
			if !all.add(describe(k) + "=" + describe(v.MapIndex(k))) {
				break
			}
		}
	case reflect.Struct:
		return describeFields(v)
	default:
		return fmt.Sprint(v.Interface())
	}
	return all.String()
}

// describeFields describes the fields of a struct that are set.
func describeFields(v reflect.Value) string {
	var all words
	for i := range v.NumField() {
		f, part := v.Type().Field(i), v.Field(i)
		switch {
		case !f.IsExported() || part.IsZero():
		case part.Kind() == reflect.Bool:
			all.add(fieldName(f.Name))
		default:
			all.add(fieldName(f.Name) + " " + describe(part))
		}
	}
	return all.String()
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
