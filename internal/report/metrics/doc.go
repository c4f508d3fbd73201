// Package metrics owns the agent's Prometheus page: counters fed by what
// happens, and the rest read from a summary of the state when the page is
// asked for. Labels are of bounded sets; no pod or container is ever named.
package metrics
