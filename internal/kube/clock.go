package kube

import "time"

// FormatTime formats a time in UTC and RFC 3339, as in the API server's objects.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
