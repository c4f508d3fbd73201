// Package intent reads what a pod asks for, in each dialect, into one neutral form.
// It has one file per dialect. Malformed text becomes a problem with key, value and
// reason, and never an error.
package intent
