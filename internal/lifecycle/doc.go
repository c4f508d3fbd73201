// Package lifecycle has the types that all other packages share: pods, containers,
// resources, lifecycle events, fields (the settings that a policy can decide) and
// the values of fields. The types are plain data. The package imports no other
// package of this module and does no I/O.
package lifecycle
