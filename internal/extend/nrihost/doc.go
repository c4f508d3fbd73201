// Package nrihost serves NRI to plugins for a runtime that has no NRI, or whose NRI is disabled. The NRI host owns one
// Adaptation of the NRI library, and the socket to which plugins connect. It also owns a gRPC server in front of the
// CRI proxy, which intercepts the CRI calls that correspond to NRI events.
//
// The host creates a container first and then adjusts it, so that plugins see its final id and its whole OCI spec.
// Until plugins have answered, the host hides the container from all callers. If a plugin refuses the container, the
// host removes it. The host sends resources through the CRI proxy like a kubelet's update, so that the agent decides
// about them. It writes all other parts of an adjustment into the spec that the runtime stores. With runtimes that do
// not allow that, the host asks plugins before the creation, with a provisional id. It then changes the request as far
// as the CRI has fields for the adjustment.
//
// The package decides nothing about CPUs, and writes no kernel files. It serves NRI 0.12 (github.com/containerd/nri,
// pkg/api and pkg/adaptation) and CRI v1.
package nrihost
