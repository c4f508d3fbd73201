// Package census counts objects in memory: the entries of every map and the elements of every slice that are reachable
// from a value, by their field. Tests use it to find leaks. It changes nothing and needs no knowledge of the types.
package census

import (
	"reflect"
	"slices"
	"strings"
)

// Count is the number of entries by path: a type and the fields from there on, with [] for the elements of a map or
// slice.
type Count map[string]int

// Of counts everything that is reachable from roots, which must not change meanwhile. It does not enter types whose
// names begin with one of skip, such as "*topology.Machine" or "prometheus.".
func Of(skip []string, roots ...any) Count {
	w := walk{count: Count{}, skip: skip, seen: map[visit]bool{}}
	for _, r := range roots {
		v := reflect.ValueOf(r)
		w.value(v.Type().String(), v)
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

// visit identifies a pointer, map or slice that was counted.
type visit struct {
	at   uintptr
	kind reflect.Type
}

type walk struct {
	count Count
	skip  []string
	seen  map[visit]bool
}

// new reports whether a value is not nil and was not counted before.
func (w *walk) new(v reflect.Value) bool {
	if v.IsNil() {
		return false
	}
	key := visit{v.Pointer(), v.Type()}
	if w.seen[key] {
		return false
	}
	w.seen[key] = true
	return true
}

func (w *walk) value(path string, v reflect.Value) {
	if !v.IsValid() || slices.ContainsFunc(w.skip, func(s string) bool { return strings.HasPrefix(v.Type().String(), s) }) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if w.new(v) {
			w.value(path, v.Elem())
		}
	case reflect.Interface:
		w.value(path, v.Elem())
	case reflect.Struct:
		if path = base(path, v.Type()); v.Type().PkgPath() == "time" {
			return
		}
		for i := range v.NumField() {
			w.value(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map:
		if w.new(v) {
			w.count[path] += v.Len()
			for at := v.MapRange(); at.Next(); {
				w.value(path+"[]", at.Value())
			}
		}
	case reflect.Slice:
		if w.new(v) {
			w.count[path] += v.Len()
		}
		w.elements(path, v)
	case reflect.Array:
		w.elements(path, v)
	}
}

// base returns the path of a struct's fields: the name of its type, wherever it is, so that equal types in deep
// structures are counted together.
func base(path string, t reflect.Type) string {
	if t.Name() == "" {
		return path
	}
	return t.String()
}

func (w *walk) elements(path string, v reflect.Value) {
	if !holds(v.Type().Elem()) {
		return
	}
	for i := range v.Len() {
		w.value(path+"[]", v.Index(i))
	}
}

// holds reports whether a map or slice may be reachable from a type.
func holds(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return true
	}
	return false
}
