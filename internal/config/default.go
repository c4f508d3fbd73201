package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// Default returns the configuration that an agent without a configuration file uses. Each field has the value of its
// tag "default". The tag of a list has commas between the elements. A field without the tag is zero, but the list of
// dialects has all dialects.
func Default() Config {
	var c Config
	fillDefaults(reflect.ValueOf(&c).Elem())
	c.Dialects = intent.Dialects()
	return c
}

// fillDefaults sets every field of a struct, and of the structs in it, to the value of its tag "default".
func fillDefaults(section reflect.Value) {
	for f, v := range section.Fields() {
		text := f.Tag.Get("default")
		switch v.Kind() {
		case reflect.Struct:
			fillDefaults(v)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // a list is printed as [], not as null
			if text != "" {
				v.Set(reflect.ValueOf(strings.Split(text, ",")))
			}
		case reflect.String:
			v.SetString(text)
		case reflect.Bool:
			v.SetBool(text == "true")
		case reflect.Int:
			n, _ := strconv.Atoi(text) // an empty text becomes 0; TestDefaultTags reads all tags
			v.SetInt(int64(n))
		}
	}
}

// KeysNeedingRestart returns the keys whose values differ between old and c, and that the agent reads only at its
// start. Such a key has the tag "restart". If the value of the tag is not "yes", it is a text that says what a change
// of the key does without a restart. KeysNeedingRestart appends this text to the returned key.
func KeysNeedingRestart(old, c Config) []string {
	var keys []string
	visitFields(reflect.ValueOf(old), "", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		note, only := f.Tag.Lookup("restart")
		if !only || reflect.DeepEqual(v.Interface(), valueAt(reflect.ValueOf(c), path)) {
			return
		}
		if note != "yes" {
			path += " (" + note + ")"
		}
		keys = append(keys, path)
	})
	return keys
}

// KeepStartKeys handles the keys that the agent reads only at its start (tag "restart"). The configuration c was read
// after the start. So if the tag of such a key is "yes", KeepStartKeys replaces the key's value in c by the value in
// force.
//
// KeepStartKeys returns the keys with the tag "restart" whose values in c differ both from the value in force and from
// the default. If the tag is not "yes", KeepStartKeys appends the text of the tag to the returned key.
func KeepStartKeys(c *Config, inForce Config) (tooLate []string) {
	def := reflect.ValueOf(Default())
	visitFields(reflect.ValueOf(c).Elem(), "", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		note, only := f.Tag.Lookup("restart")
		if !only {
			return
		}
		present := valueAt(reflect.ValueOf(inForce), path)
		if reflect.DeepEqual(v.Interface(), present) {
			return
		}
		isSet := !reflect.DeepEqual(v.Interface(), valueAt(def, path))
		if note != "yes" {
			path += " (" + note + ")"
		} else {
			v.Set(reflect.ValueOf(present))
		}
		if isSet {
			tooLate = append(tooLate, path)
		}
	})
	return tooLate
}

// valueAt returns the value of the key at path. The path must not contain an index of a list.
func valueAt(v reflect.Value, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := fieldsOf(v.Type())
		v = v.FieldByIndex(fields[name].Index)
	}
	return v.Interface()
}
