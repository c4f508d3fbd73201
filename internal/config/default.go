package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// Default returns the configuration without a file. The tags "default" of its fields have the values; a list is
// separated by commas, and a field without the tag is zero. All dialects are read.
func Default() Config {
	var c Config
	fillDefaults(reflect.ValueOf(&c).Elem())
	c.Dialects = intent.Dialects()
	return c
}

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

// NeedRestart returns the keys that differ and that the agent reads only at its start. These keys have the tag
// "restart": "yes", or a text that says what a change does before the restart.
func NeedRestart(old, c Config) []string {
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

// KeepStartKeys gives the keys that the agent reads only at its start their values in force, because c came after the
// start. It leaves a key unchanged if the text of its tag "restart" is not "yes". It returns each key with this tag
// that c sets to another value than the one in force and the default, and adds the text if it is not "yes".
func KeepStartKeys(c *Config, inForce Config) (tooLate []string) {
	def := reflect.ValueOf(Default())
	visitFields(reflect.ValueOf(c).Elem(), "", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		note, only := f.Tag.Lookup("restart")
		if !only {
			return
		}
		kept := valueAt(reflect.ValueOf(inForce), path)
		if reflect.DeepEqual(v.Interface(), kept) {
			return
		}
		isSet := !reflect.DeepEqual(v.Interface(), valueAt(def, path))
		if note != "yes" {
			path += " (" + note + ")"
		} else {
			v.Set(reflect.ValueOf(kept))
		}
		if isSet {
			tooLate = append(tooLate, path)
		}
	})
	return tooLate
}

// valueAt returns the value of a key that is not in a list.
func valueAt(v reflect.Value, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := fieldsOf(v.Type())
		v = v.FieldByIndex(fields[name].Index)
	}
	return v.Interface()
}
