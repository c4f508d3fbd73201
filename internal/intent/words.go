package intent

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// maxDescription limits a description, in bytes. The request of a hostile pod can have thousands of parts, and
// Printable shortens a long description anyway.
const maxDescription = 512

// describeValue describes a value that a pod requests, for users. It describes the elements of lists and maps, and the
// fields of a struct that are set, such as "type RLIMIT_NOFILE, hard 20".
func describeValue[T any](v T) string {
	if m, ok := any(v).(map[string]string); ok { // such maps may be large, and reflection is slow
		var all description
		for _, k := range sortedKeys(m) {
			if !all.add(k + "=" + m[k]) {
				break
			}
		}
		return all.String()
	}
	return describe(reflect.ValueOf(v))
}

// description collects the parts of a description.
type description struct {
	parts []string
	size  int // of all parts, in bytes
}

// add adds a part, and reports whether there is room for more.
func (w *description) add(part string) bool {
	w.parts = append(w.parts, part)
	w.size += len(part)
	return w.size < maxDescription
}

// String joins the parts with commas, or with semicolons if a part has a comma.
func (w *description) String() string {
	if slices.ContainsFunc(w.parts, func(p string) bool { return strings.Contains(p, ", ") }) {
		return strings.Join(w.parts, "; ")
	}
	return strings.Join(w.parts, ", ")
}

// describe does the work of describeValue. It returns "" for an invalid value or a nil pointer.
func describe(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	var all description
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
	var all description
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

// fieldName returns the name of a struct's field for users, such as "readBPS" for ReadBPS. A name that begins with two
// capital letters, such as CPUs, does not change.
func fieldName(name string) string {
	r := []rune(name)
	if len(r) > 1 && unicode.IsUpper(r[1]) {
		return name
	}
	r[0] = unicode.ToLower(r[0])
	return string(r)
}
