package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// Key describes one key of the configuration file.
type Key struct {
	Path    string   // e.g. hooks.cpuset.enabled
	Type    string   // string, boolean, integer, list of strings, or section
	Default string   // as JSON; "" for a section
	Values  []string // all valid values, if they are few
	Allowed string   // a text that describes the valid values
	Restart string   // "yes" if the agent reads the key only at its start, or what a change does without a restart, or ""
	About   string   // a text that describes what the key does
}

// IsSection reports whether the key has only other keys below it.
func (k Key) IsSection() bool { return k.Type == "section" }

// Keys returns all keys in the order of the struct's fields.
func Keys() []Key {
	var keys []Key
	byPath, restart := keyRules(), map[string]string{}
	visitFields(keySample(), "", func(path string, f reflect.StructField, owner reflect.Type, v reflect.Value) {
		k := Key{Path: withoutIndexes(path), Type: typeName(f.Type), About: descriptions[owner.Name()+"."+f.Name]}
		k.Restart = cmp.Or(f.Tag.Get("restart"), restart[strings.TrimSuffix(parentOf(k.Path), "[]")])
		restart[k.Path] = k.Restart
		if isSectionList(f.Type) {
			v = reflect.ValueOf([]Rule{})
		}
		if !k.IsSection() {
			k.Default = asJSON(v.Interface())
			r := byPath[k.Path]
			k.Values, k.Allowed = r.choices, r.allowedValues()
		}
		keys = append(keys, k)
	})
	return keys
}

// keySample is a configuration with one element in each list of sections, so that it has all keys.
func keySample() reflect.Value {
	c := Default()
	growLists(reflect.ValueOf(&c).Elem())
	return reflect.ValueOf(c)
}

// growLists gives each list of sections one element.
func growLists(section reflect.Value) {
	for _, v := range section.Fields() {
		switch {
		case v.Kind() == reflect.Struct:
			growLists(v)
		case isSectionList(v.Type()):
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fillDefaults(v.Index(0))
			growLists(v.Index(0))
		}
	}
}

// visitFields calls visit for every field of a struct and of the structs in it, top down. In a list of structs, it
// visits the fields of every element. The parameter owner of visit is the struct type that has the field.
func visitFields(v reflect.Value, path string, visit func(path string, f reflect.StructField, owner reflect.Type, v reflect.Value)) {
	for f, fv := range v.Fields() {
		at := joinPath(path, f.Tag.Get("json"))
		visit(at, f, v.Type(), fv)
		switch {
		case f.Type.Kind() == reflect.Struct:
			visitFields(fv, at, visit)
		case isSectionList(f.Type):
			for i := range fv.Len() {
				visitFields(fv.Index(i), fmt.Sprintf("%s[%d]", at, i), visit)
			}
		}
	}
}

// visitKeys calls visit for every key that is not a section. It skips the keys of sections that are in a list.
func visitKeys(c Config, visit func(path string, v reflect.Value)) {
	visitFields(reflect.ValueOf(c), "", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		if !strings.Contains(path, "[") && f.Type.Kind() != reflect.Struct {
			visit(path, v)
		}
	})
}

// isSectionList reports whether a type is a list of sections.
func isSectionList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// listIndex matches the index of a list element in a path, such as "[0]".
var listIndex = regexp.MustCompile(`\[\d+\]`)

// withoutIndexes returns a path with "[]" in place of each index of a list. The map that keyRules returns has paths of
// this form.
func withoutIndexes(path string) string { return listIndex.ReplaceAllString(path, "[]") }

// fieldsOf returns the fields of a struct type by key, and the keys in order. It includes fields of embedded structs.
func fieldsOf(t reflect.Type) (map[string]reflect.StructField, []string) {
	byKey := map[string]reflect.StructField{}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); !f.Anonymous {
			byKey[name] = f
			names = append(names, name)
		}
	}
	return byKey, names
}

// typeName returns the name of a key's type for users.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "section"
	case reflect.Bool:
		return "boolean"
	case reflect.Int:
		return "integer"
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.String:
		return "string"
	default:
		return fmt.Sprintf("unreadable %s", t.Kind())
	}
}

// asJSON returns a value of a key as JSON.
func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// parentOf returns the path of the list that has the element at path, or of the section that has the key at path. It
// returns "" for a top-level key.
func parentOf(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
