// Package lifecycle has the types that all other packages share: pods, containers,
// resources, lifecycle events, and the fields that a policy can set with their
// values. The types are plain data. The package imports no other package of this
// module and does no I/O.
package lifecycle
