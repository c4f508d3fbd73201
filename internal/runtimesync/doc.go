// Package runtimesync is the runtime as a sink of values, beside the kernel (keeper): what the runtime's stored copy of
// each container has, what it is to have and lacks, and which copies wait until they are sent. It sends nothing and
// locks nothing: its callers do.
package runtimesync
