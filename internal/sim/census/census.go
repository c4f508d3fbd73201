// Package census counts what a program has in memory: the entries of every map, and
// the elements of every slice, that can be reached from a value, by the field they are
// in. It is for tests that look for what is kept after it ended. It changes nothing,
// and knows nothing of what it counts.
package census

import (
	"reflect"
	"slices"
	"strings"
)

// Count is how many entries there are, meanwhile to them: a type and the fields
// from there on, with [] for what is in a map or slice.
type Count map[string]int

// Of counts what can be reached from roots. Nothing may change meanwhile. Types whose
// names begin with one of skip, such as "*topology.Machine" or "prometheus.", are not
// entered.
func Of(skip []string, roots ...any) Count {
	w := walk{count: Count{}, skip: skip, seen: map[visit]bool{}}
	for _, r := range roots {
		v := reflect.ValueOf(r)
		w.value(v.Type().String(), v)
	}
	return w.count
}

// Growth lists what there is more of than before, sorted.
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

// visit is a pointer, map or slice that was counted.
type visit struct {
	at   uintptr
	kind reflect.Type
}

type walk struct {
	count Count
	skip  []string
	seen  map[visit]bool
}

// new reports whether something is there and was not counted before.
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

// base is where a struct's fields are counted: under its own name, wherever it is, so
// that what lies in deep structures is counted together.
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

// holds reports whether something of a type may lead to a map or slice.
func holds(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return true
	}
	return false
}
