// Package events writes Kubernetes events: on pods whose requests were refused or
// whose values are not in force, and on the node. Nothing waits for it: events wait in
// a bounded queue, and what is dropped is counted.
package events
