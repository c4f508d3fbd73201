// Package intent reads the labels, annotations and resource claims of a pod, and batch resources of its spec,
// into one form for all dialects, the intent of the pod. A dialect is the set of keys of one system, such as
// Koordinator. Each dialect has its own file. A malformed text becomes a problem with key, value and reason,
// and never an error.
package intent
