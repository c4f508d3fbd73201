package fleet

import (
	"bytes"
	"fmt"
	"reflect"

	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/config"
)

// Layers are the configurations for a node in the ConfigMaps of the cluster, of the node's group and of the node, as
// YAML; "" for none. Group overrides Cluster, and Node overrides both.
type Layers struct {
	Cluster, Group, Node string
}

// list returns the layers for config.Merge: the node's own file, and the existing layers of l above it.
func (l Layers) list(file string) []config.Layer {
	all := []config.Layer{{Name: "the node's file", Data: []byte(file)}}
	for _, x := range []config.Layer{
		{Name: "the cluster's ConfigMap", Data: []byte(l.Cluster)}, {Name: "the group's ConfigMap", Data: []byte(l.Group)}, {Name: "the node's ConfigMap", Data: []byte(l.Node)},
	} {
		if len(x.Data) > 0 {
			x.Shared = true
			all = append(all, x)
		}
	}
	return all
}

// Effective returns the configuration of a node with these layers above the node's own configuration file.
func (l Layers) Effective(file string) (config.Config, error) {
	c, _, err := config.Merge(l.list(file)...)
	return c, err
}

// Overlay returns a document for the node's own ConfigMap, for the time of a rollout. During that time the ConfigMaps
// of the cluster and of the group are those in before. Together with this document, they give the node the
// configuration that all ConfigMaps in after would give it. If a key is set in before, but not in after, the document
// sets the key to the value in the node's file. Overlay returns an error if no such document exists.
func Overlay(file string, before, after Layers) (string, error) {
	want, err := after.Effective(file)
	if err != nil {
		return "", err
	}
	old, err := mergeLayers(before)
	if err != nil {
		return "", err
	}
	overlay, err := mergeLayers(after)
	if err != nil {
		return "", err
	}
	var own map[string]any
	if err := yaml.Unmarshal([]byte(file), &own); err != nil {
		return "", fmt.Errorf("read the node's configuration file: %w", err)
	}
	restoreRemovedKeys(overlay, old, own)
	text, err := yaml.Marshal(overlay)
	if err != nil {
		return "", fmt.Errorf("encode the configuration for the node's ConfigMap: %w", err)
	}
	staged := Layers{Cluster: before.Cluster, Group: before.Group, Node: string(text)}
	got, err := staged.Effective(file)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(config.Print(got), config.Print(want)) || !reflect.DeepEqual(got, want) {
		return "", fmt.Errorf("the node's own ConfigMap cannot express the new configuration; apply the configuration without --watch")
	}
	return string(text), nil
}

// mergeLayers merges layers in the same way as config.Merge: mappings are merged key by key, and other values
// replace earlier ones.
func mergeLayers(l Layers) (map[string]any, error) {
	all := map[string]any{}
	for _, text := range []string{l.Cluster, l.Group, l.Node} {
		var one map[string]any
		if err := yaml.Unmarshal([]byte(text), &one); err != nil {
			return nil, fmt.Errorf("read the configuration in a ConfigMap: %w", err)
		}
		config.Rename(one)
		mergeLayer(all, one)
	}
	if len(all) == 0 { // without layers, add apiVersion and kind, because each document needs them
		all["apiVersion"], all["kind"] = config.APIVersion, config.Kind
	}
	return all, nil
}

// mergeLayer merges the mapping above into the mapping below.
func mergeLayer(below, above map[string]any) {
	for key, value := range above {
		section, is := value.(map[string]any)
		under, was := below[key].(map[string]any)
		switch {
		case value == nil: // a key without a value has no effect
		case is && was:
			mergeLayer(under, section)
		case is:
			copied := map[string]any{}
			mergeLayer(copied, section)
			below[key] = copied
		default:
			below[key] = value
		}
	}
}

// restoreRemovedKeys adds keys to overlay: the keys that are in old, but not in overlay. Each added key gets its value
// in file.
func restoreRemovedKeys(overlay, old, file map[string]any) {
	for key, value := range old {
		oldSection, is := value.(map[string]any)
		if !is {
			if _, has := overlay[key]; !has && file[key] != nil {
				overlay[key] = file[key]
			}
			continue
		}
		section, has := overlay[key].(map[string]any)
		if !has {
			section = map[string]any{}
		}
		below, _ := file[key].(map[string]any)
		restoreRemovedKeys(section, oldSection, below)
		if len(section) > 0 {
			overlay[key] = section
		}
	}
}

// effectiveText returns the effective configuration as the text of a configuration file.
func (l Layers) effectiveText(file string) (string, error) {
	c, err := l.Effective(file)
	if err != nil {
		return "", err
	}
	return string(config.Print(c)), nil
}
