package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// formerNames returns the keys of a section by their former names, from the tag was of its fields.
func formerNames(section reflect.Type) map[string]string {
	var names map[string]string
	for f := range section.Fields() {
		if was := f.Tag.Get("was"); was != "" {
			if names == nil {
				names = map[string]string{}
			}
			names[was] = f.Tag.Get("json")
		}
	}
	return names
}

// newName returns the present name of a key, and notes the key if the document has its former name.
func (d *decoder) newName(section reflect.Type, path string, key *yaml.Node) string {
	now, was := formerNames(section)[key.Value]
	if !was {
		return key.Value
	}
	d.renamed = append(d.renamed, Problem{
		File: d.file, Line: key.Line, Path: joinPath(path, key.Value), What: fmt.Sprintf("is called %q now; the former name is still read", now),
	})
	return now
}

// Renamed lists the keys that a document has by their former names, which are read like the new
// ones, and the keys of its placement.policyFile that have no equivalent. It is empty for a
// document that is malformed.
func Renamed(name string, data []byte) []Problem {
	root, problems := document(name, data)
	if problems != nil {
		return nil
	}
	c := Default()
	d := decoder{file: name, lines: map[string]int{}}
	d.value(root, reflect.ValueOf(&c).Elem(), "")
	return append(d.renamed, unservedKeys(&c)...)
}

// Rename gives the top-level keys of a document their new names.
func Rename(document map[string]any) {
	for was, now := range formerNames(reflect.TypeFor[Config]()) {
		v, has := document[was]
		if _, both := document[now]; has && !both {
			delete(document, was)
			document[now] = v
		}
	}
}

// RenameJSON does what Rename does for a document as JSON. It returns a document that is not a mapping unchanged.
func RenameJSON(document []byte) []byte {
	var keys map[string]json.RawMessage
	if json.Unmarshal(document, &keys) != nil {
		return document
	}
	for was, now := range formerNames(reflect.TypeFor[Config]()) {
		v, has := keys[was]
		if _, both := keys[now]; has && !both {
			delete(keys, was)
			keys[now] = v
			if out, err := json.Marshal(keys); err == nil {
				document = out
			}
		}
	}
	return document
}
