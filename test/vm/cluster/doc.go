// Package cluster tests what the agent does through the API server, against a real etcd and kube-apiserver.
package cluster
