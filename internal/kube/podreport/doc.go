// Package podreport reports the pods of a node to the API server. It writes events for refused or degraded requests and
// for values that are not in force, and annotations with the placement of pods. It reads the node's journal and state.
// No request of the runtime waits for this package.
package podreport
