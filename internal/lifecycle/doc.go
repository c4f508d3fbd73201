// Package lifecycle owns the types that all other packages share: pods, containers,
// their resources, the events of their life, the fields that a policy can set and
// the values decided for them. It is plain data; it imports nothing of ours and
// does no I/O.
package lifecycle
