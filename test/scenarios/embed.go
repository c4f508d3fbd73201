package scenarios

import _ "embed"

// Demo is the file demo.yaml, the scenario that `trimtab demo` plays. Its format is the same as for all scenarios.
//
//go:embed demo.yaml
var Demo []byte
