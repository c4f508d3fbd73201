// Package runtimesync treats the runtime as a destination of values, as the keeper treats the kernel. For each
// container it has the content of the runtime's stored copy, the values that the copy lacks, and the queue of
// outdated copies. It sends nothing and takes no lock: its callers do.
package runtimesync
