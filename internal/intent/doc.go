// Package intent reads the labels, annotations and resource claims of a pod, and the batch resources of its spec. It
// converts them to one form, the intent of the pod, which is the same for all dialects. A dialect is the set of keys of
// one system, such as Koordinator. Each dialect has its own file. A malformed text becomes a problem with key, value
// and reason, and never an error.
package intent
