// Package kube is the agent's connection to the Kubernetes API server: one client, and
// the services that use it. No node needs it to start, and no container needs it to
// keep its values: an API server that fails costs reports, never pods. Without
// cluster.enabled nothing of it runs.
package kube
