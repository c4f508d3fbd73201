package kube

import "time"

// FormatTime formats a time as the API server's objects do.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
