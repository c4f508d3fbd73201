// Package rules turns the administrator's rules into hooks. A rule has a condition, which is a CEL expression over
// a pod and a container, and the values that it sets if the condition is true. The package compiles rules when the
// agent loads the configuration. It evaluates them without I/O, clock or globals.
package rules

//go:generate go test -run ^TestDocs$ . -update
