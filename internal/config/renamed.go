package config

import (
	"encoding/json"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// formerNames returns the keys of a section that had another name, by their former names. The tag "was" of a field has
// the former name.
func formerNames(section reflect.Type) map[string]string {
	names := map[string]string{}
	for f := range section.Fields() {
		if was := f.Tag.Get("was"); was != "" {
			names[was] = f.Tag.Get("json")
		}
	}
	return names
}

// newName returns the present name of a key. If the document has the key by its former name, newName adds the key to
// formerKeys.
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

// KeyWarnings lists the keys that a document has by their former names; the agent still reads such keys. It also lists
// the keys without an equivalent in the file that the document's placement.policyFile names. The list is empty for a
// malformed document.
func KeyWarnings(name string, data []byte) []Problem {
	c, d := decodeDocument(name, data)
	if d == nil {
		return nil
	}
	return append(d.formerKeys, unconvertedKeys(c)...)
}

// Rename gives the present name to each top-level key of a document that has a former name. It does not rename a key if
// the document also has the present name. It reports whether it renamed a key.
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

// RenameJSON gives the present name to each top-level key of a JSON document that has a former name. If the document is
// not a mapping, RenameJSON returns it unchanged.
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
