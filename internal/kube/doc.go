// Package kube is the agent's side of the Kubernetes API server: one client, and
// the parts that use it. Nothing here is needed for a node to start or to keep its
// promises: a server that is away, slow or wrong costs reports, never pods. Without
// cluster.enabled none of it runs.
package kube
