// Package intent reads what a pod asks for, in whatever dialect it was
// written, into one neutral form. One file per dialect. Foreign text that makes
// no sense becomes a problem with key, value and reason, and never an error.
package intent
