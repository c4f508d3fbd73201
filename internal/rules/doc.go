// Package rules turns the administrator's rules into hooks. A rule has a condition, which is a CEL expression over
// a pod and a container. If the condition is true, the rule sets values, or refuses the container. The package compiles
// rules when the agent loads the configuration. It evaluates rules without I/O, clock or globals.
package rules

//go:generate go test -run ^TestDocs$ . -update
