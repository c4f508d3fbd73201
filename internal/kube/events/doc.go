// Package events writes Kubernetes events about pods whose requests were refused or whose values are not in force, and
// about ConfigMaps that the agent refuses. Callers do not wait for the API server: events go through a queue of limited
// length. The package counts the events that it drops.
package events
