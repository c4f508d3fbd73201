// Package status reports what the agent decided: a root-only Unix socket
// serving JSON, and the client of it. It decides nothing.
package status
