// Package timely measures how soon each source, such as the Pods API or NRI, knows a pod that was created at the API
// server. The node has a real kubelet and containerd.
package timely
