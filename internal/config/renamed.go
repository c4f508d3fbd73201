package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// formerNames returns the keys of a section by their former names, from the tag "was" of its fields.
func formerNames(section reflect.Type) map[string]string {
	names := map[string]string{}
	for f := range section.Fields() {
		if was := f.Tag.Get("was"); was != "" {
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
	d.formerKeys = append(d.formerKeys, Problem{
		File: d.file, Line: key.Line, Path: joinPath(path, key.Value), What: fmt.Sprintf("is called %q now; the former name is still read", now),
	})
	return now
}

// KeyWarnings lists the keys that a document has by their former names, which are read like the new ones, and the keys
// of its placement.policyFile that have no equivalent. It is empty for a document that is malformed.
func KeyWarnings(name string, data []byte) []Problem {
	c, d := decodeDocument(name, data)
	if d == nil {
		return nil
	}
	return append(d.formerKeys, unservedKeys(c)...)
}

// Rename gives the top-level keys of a document their new names. It reports whether there were any to change.
func Rename[V any](document map[string]V) (changed bool) {
	for was, now := range formerNames(reflect.TypeFor[Config]()) {
		v, has := document[was]
		if _, both := document[now]; has && !both {
			delete(document, was)
			document[now], changed = v, true
		}
	}
	return changed
}

// RenameJSON does what Rename does for a document as JSON. It returns a document that is not a mapping unchanged.
func RenameJSON(document []byte) []byte {
	var keys map[string]json.RawMessage
	if json.Unmarshal(document, &keys) != nil || !Rename(keys) {
		return document
	}
	if out, err := json.Marshal(keys); err == nil {
		return out
	}
	return document
}
