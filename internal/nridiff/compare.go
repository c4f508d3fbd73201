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

// Change is a setting of a container for which two observers saw different values. Before is the value that the earlier
// observer saw, and After the value that the later observer saw. An empty value means that the setting did not exist.
type Change struct {
	Setting string `json:"setting"`
	Before  string `json:"before,omitempty"`
	After   string `json:"after,omitempty"`
}

// Result is what NRI plugins changed in a container. It includes only the plugins that run after the observer From and
// before the observer To. Plugins run in the order of their indices.
type Result struct {
	Pod       string   `json:"pod"` // namespace/name
	Container string   `json:"container"`
	ID        string   `json:"id"`
	From      string   `json:"from"` // the index of the observer that ran before the plugins
	To        string   `json:"to"`   // the index of the observer that ran after the plugins
	Changes   []Change `json:"changes"`
}

// entryKeys has, for each list in NRI's message Container, the JSON member that distinguishes the entries of this list.
// Two mounts, for example, differ in their destination.
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

// flatten adds each setting in the JSON value v to out. The parameter name is the path of v in the message, with dots,
// such as "linux.resources.cpu".
func flatten(out map[string]string, name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if one, wrapped := v["value"]; wrapped && len(v) == 1 && strings.Contains(name, ".") { // NRI wraps an optional value in a message whose only member is named value
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

// flattenList adds the entries of a list to out, each with a name of its own. An entry's name is the name of the list
// and a key. The key of an environment variable is the variable's name. For the lists in entryKeys, the key is the
// member that distinguishes entries, such as the destination of a mount. For all other entries, the key is the index.
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
