// Package runtimesync keeps track of the runtime's stored copies of containers. For each container it knows what the
// copy has and which values it lacks, and it has a queue of the outdated copies. The package sends nothing and takes no
// lock: its callers do.
package runtimesync
