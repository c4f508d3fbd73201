// Package timely measures how soon each source knows a pod that was created at the API server, on a node with a real
// kubelet and containerd.
package timely
