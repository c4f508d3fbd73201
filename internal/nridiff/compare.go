package nridiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protojson"
)

// Change is a setting of a container that differs between two observers. An empty value means that the setting does
// not exist.
type Change struct {
	Setting string `json:"setting"`
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
}

// Result is what the plugins between two observers changed in a container. Plugins run in the order of their
// indices.
type Result struct {
	Pod       string   `json:"pod"` // namespace/name
	Container string   `json:"container"`
	ID        string   `json:"id"`
	From      string   `json:"from"` // the index of the observer that ran before the plugins
	To        string   `json:"to"`   // the index of the observer that ran after the plugins
	Changes   []Change `json:"changes"`
}

// entryKeys has, for each list of a container, the member by which the entries of the list differ.
var entryKeys = map[string]string{"mounts": "destination", "devices": "path", "namespaces": "type", "rlimits": "type", "hugepageLimits": "pageSize", "CDIDevices": "name"}

// settingsOf returns the values of all settings of a container, by the names of the settings.
func settingsOf(c *api.Container) (map[string]string, error) {
	text, err := protojson.Marshal(c)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	out := map[string]string{}
	flatten(out, "", tree)
	return out, nil
}

// flatten adds the settings in a JSON value to out. name is the name of the value.
func flatten(out map[string]string, name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if one, wrapped := v["value"]; wrapped && len(v) == 1 && strings.Contains(name, ".") { // an optional message of NRI, which has only a value
			flatten(out, name, one)
			return
		}
		for k, e := range v {
			flatten(out, strings.TrimPrefix(name+"."+k, "."), e)
		}
	case []any:
		flattenList(out, name, v)
	default:
		out[name] = fmt.Sprint(v)
	}
}

// flattenList adds the entries of a list to out. It names an entry by the member by which the entries differ: a
// variable by its name, a mount by its destination. It numbers the entries of all other lists.
func flattenList(out map[string]string, name string, all []any) {
	short := name[strings.LastIndexByte(name, '.')+1:]
	for i, e := range all {
		at := fmt.Sprint(i)
		switch e := e.(type) {
		case string:
			if key, value, is := strings.Cut(e, "="); is && short == "env" {
				out[name+" "+key] = value
				continue
			}
		case map[string]any:
			if key, has := e[entryKeys[short]].(string); has && name != "linux.resources.devices" {
				text, _ := json.Marshal(withoutKey(e, entryKeys[short])) // no error: e was read from JSON
				out[name+" "+key] = string(text)
				continue
			}
		}
		flatten(out, name+" "+at, e)
	}
}

// withoutKey returns a copy of a map without one key.
func withoutKey(all map[string]any, key string) map[string]any {
	out := maps.Clone(all)
	delete(out, key)
	return out
}

// compareSettings lists the settings that differ, sorted by their names.
func compareSettings(before, after map[string]string) []Change {
	names := maps.Clone(before)
	maps.Copy(names, after)
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b, had := before[name]
		a, has := after[name]
		if had != has || a != b {
			out = append(out, Change{name, b, a})
		}
	}
	return out
}
