// Package numahints merges topology hints as the kubelet's topology manager and Katalyst's do: each
// resource of a container says on which sets of NUMA nodes it can be had, and a policy chooses one
// set, or refuses. It knows no resource and does no I/O.
//
// Sources: Kubernetes 1.36, cm/topologymanager (policy.go, policy_*.go, numa_info.go); Katalyst,
// topology manager of its out-of-band resource manager (policy numeric).
package numahints
