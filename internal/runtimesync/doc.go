// Package runtimesync keeps track of the copies of containers' values that a runtime stores and uses for later updates.
// For each container, the package knows which values the runtime's copy has and which values the copy lacks. It has a
// queue of the outdated copies. The package sends nothing to the runtime and takes no lock: the callers do both.
package runtimesync
