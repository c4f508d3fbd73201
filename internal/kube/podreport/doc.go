// Package podreport reports the pods of a node through the API server: as events what
// was refused, degraded or is not in force, and as annotations where they were placed.
// It reads the node's journal and state, off the path of requests.
package podreport
