// Package cluster tests the agent's use of the API server with a real etcd and kube-apiserver.
package cluster
