// Package kube is the agent's connection to the Kubernetes API server: one client, and the services that use it. No
// node needs the API server to start, and no container needs it to keep its values. If the API server fails,
// reports are late and pods are not affected. Without cluster.enabled nothing in this package runs.
package kube
