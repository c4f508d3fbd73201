// Package metrics serves the agent's metrics to Prometheus. Some metrics count what happens. All others are read from
// a summary of the state at the time of the request. Labels have few values and never name a pod or container.
package metrics
