package kube

import "time"

// Stamp formats a time as the API server's objects do.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
