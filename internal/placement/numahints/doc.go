// Package numahints merges topology hints as the topology managers of the kubelet and of Katalyst do. Each resource of
// a container has a list of the sets of NUMA nodes on which the resource is available. A policy chooses one set, or
// does not admit the container. The package treats all resources in the same way and does no I/O.
//
// The algorithms are those of Kubernetes 1.36, cm/topologymanager (policy.go, policy_*.go, numa_info.go), and of
// Katalyst, topology manager of its out-of-band resource manager (policy numeric).
package numahints
