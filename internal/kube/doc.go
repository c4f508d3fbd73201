// Package kube is the agent's connection to the Kubernetes API server: one client, and the services that use the
// client. The agent starts without the API server, and containers keep their values without it. If the API server
// fails, reports are late, and pods are not affected. Without cluster.enabled nothing in this package runs.
package kube
