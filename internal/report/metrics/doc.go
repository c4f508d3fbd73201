// Package metrics owns the agent's Prometheus page. Some metrics count what happens. All others come from a summary
// of the state at the time of the request. Labels have bounded sets of values and never name a pod or container.
package metrics
