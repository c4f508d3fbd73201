// Package events writes Kubernetes events: on pods whose requests were refused or whose
// values are not in force, and on the node. No caller waits: events go through a
// bounded queue, and dropped ones are counted.
package events
