// Package census counts the entries of all maps and slices that are reachable from a value. Tests compare two counts to
// find leaks.
package census

import (
	"reflect"
	"slices"
	"strings"
)

// Count is the number of entries of maps and slices, by path. A path is the name of a type and a chain of fields,
// with [] for an element of a map or slice.
type Count map[string]int

// Of counts the entries of all maps and slices that are reachable from roots, which must not change meanwhile. It
// ignores values of a type whose name begins with a prefix in skip, such as "*topology.Machine" or "prometheus.".
func Of(skip []string, roots ...any) Count {
	w := walker{count: Count{}, skip: skip, seen: map[visited]bool{}}
	for _, r := range roots {
		v := reflect.ValueOf(r)
		w.countValue(v.Type().String(), v)
	}
	return w.count
}

// Growth lists the paths with more entries than before, sorted.
func (c Count) Growth(before Count) []string {
	var out []string
	for name, n := range c {
		if n > before[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// visited identifies a pointer, map or slice that was counted.
type visited struct {
	address uintptr
	kind    reflect.Type
}

// walker counts entries. The map seen has what was counted, so that nothing is counted twice.
type walker struct {
	count Count
	skip  []string
	seen  map[visited]bool
}

// firstVisit reports whether a value is not nil and was not counted before.
func (w *walker) firstVisit(v reflect.Value) bool {
	if v.IsNil() {
		return false
	}
	key := visited{v.Pointer(), v.Type()}
	if w.seen[key] {
		return false
	}
	w.seen[key] = true
	return true
}

// countValue counts the entries of all maps and slices that are reachable from a value with the given path.
func (w *walker) countValue(path string, v reflect.Value) {
	if !v.IsValid() || slices.ContainsFunc(w.skip, func(s string) bool { return strings.HasPrefix(v.Type().String(), s) }) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if w.firstVisit(v) {
			w.countValue(path, v.Elem())
		}
	case reflect.Interface:
		w.countValue(path, v.Elem())
	case reflect.Struct:
		if path = typePath(path, v.Type()); v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			w.countValue(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map:
		if w.firstVisit(v) {
			w.count[path] += v.Len()
			for at := v.MapRange(); at.Next(); {
				w.countValue(path+"[]", at.Value())
			}
		}
	case reflect.Slice:
		if w.firstVisit(v) {
			w.count[path] += v.Len()
		}
		w.countElements(path, v)
	case reflect.Array:
		w.countElements(path, v)
	}
}

// typePath returns the start of the path of a struct's fields. It is the name of the struct's type, so that the
// fields of one type are counted together wherever they are.
func typePath(path string, t reflect.Type) string {
	if t.Name() == "" {
		return path
	}
	return t.String()
}

// countElements calls countValue for the elements of a slice or array, if a map or slice may be reachable from them.
func (w *walker) countElements(path string, v reflect.Value) {
	if !canReachMap(v.Type().Elem()) {
		return
	}
	for i := range v.Len() {
		w.countValue(path+"[]", v.Index(i))
	}
}

// canReachMap reports whether a map or slice may be reachable from a value of a type.
func canReachMap(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return true
	}
	return false
}
