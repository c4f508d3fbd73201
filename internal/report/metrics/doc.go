// Package metrics serves the agent's metrics to Prometheus. Some metrics count or measure events and calls when they
// happen. The values of all other metrics are read from a summary of the agent's state at the time of the request.
// Labels have few values and never name a pod or container.
package metrics
