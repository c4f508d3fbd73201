package chart

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// valuesSchema is the JSON schema of the chart's values, without the schema of the agent's configuration.
//
//go:embed values.schema.json
var valuesSchema []byte

// Schema returns the JSON schema of the chart's values. It is values.schema.json of this package, and for the value
// "config" it has the schema of the agent's configuration (docs/config.schema.json). So Helm refuses a configuration
// that the agent does not accept. The schema of "config" lacks the keys apiVersion, kind and attach, because the chart
// itself writes these keys.
func Schema(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, "docs/config.schema.json"))
	if err != nil {
		return nil, err
	}
	values, config := map[string]any{}, map[string]any{}
	if err := json.Unmarshal(valuesSchema, &values); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	keys, ok := config["properties"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("docs/config.schema.json has no properties")
	}
	for _, own := range []string{"apiVersion", "kind", "attach"} {
		delete(keys, own)
	}
	for _, head := range []string{"$schema", "title", "required"} {
		delete(config, head)
	}
	top, ok := values["properties"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("values.schema.json has no properties")
	}
	top["config"] = config
	text, err := json.MarshalIndent(values, "", "  ")
	return append(text, '\n'), err
}
