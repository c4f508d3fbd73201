// Package events writes Kubernetes events: on pods with refused requests or with values that are not in force, and on
// ConfigMaps that the agent refuses. No caller waits: events go through a bounded queue. The package counts the events
// that it drops.
package events
