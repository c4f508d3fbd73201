// Package rules makes hooks of the administrator's rules: expressions in CEL over a
// pod and a container, and what is set where they hold. It compiles them when the
// configuration is loaded, and evaluates them without I/O, clock or globals.
package rules

//go:generate go test -run ^TestDocs$ . -update
