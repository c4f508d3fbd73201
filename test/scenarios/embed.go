package scenarios

import _ "embed"

// Demo is the scenario `trimtab demo` plays: demo.yaml, as any other.
//
//go:embed demo.yaml
var Demo []byte
