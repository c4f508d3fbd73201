package kube

import "time"

// Stamp formats a time as objects of the API server have it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
