package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
)

// Default returns the configuration that is in force where a file says
// nothing: what the tags default of its fields say, a list by commas, and else
// the zero value. All dialects are read.
func Default() Config {
	var c Config
	fill(reflect.ValueOf(&c).Elem())
	c.Dialects = intent.Dialects()
	return c
}

func fill(section reflect.Value) {
	for f, v := range section.Fields() {
		text := f.Tag.Get("default")
		switch v.Kind() {
		case reflect.Struct:
			fill(v)
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
			n, _ := strconv.Atoi(text) // none is 0; TestDefaultTags reads them all
			v.SetInt(int64(n))
		}
	}
}

// NeedRestart names the keys that differ and that only a start of the agent
// reads: the tag restart says so, "yes" or what becomes of the key until then.
func NeedRestart(old, c Config) []string {
	var keys []string
	each(reflect.ValueOf(old), "", func(path string, f reflect.StructField, _ reflect.Type, v reflect.Value) {
		note, only := f.Tag.Lookup("restart")
		if !only || reflect.DeepEqual(v.Interface(), at(reflect.ValueOf(c), path)) {
			return
		}
		if note != "yes" {
			path += " (" + note + ")"
		}
		keys = append(keys, path)
	})
	return keys
}

// at returns the value of a key that is in no list.
func at(v reflect.Value, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := fieldsOf(v.Type())
		v = v.Field(fields[name])
	}
	return v.Interface()
}
