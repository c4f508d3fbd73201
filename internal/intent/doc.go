// Package intent reads the requests of a pod, in each dialect, into one neutral form. Each
// dialect has its file. Malformed text becomes a problem with key, value and reason, and never
// an error.
package intent
