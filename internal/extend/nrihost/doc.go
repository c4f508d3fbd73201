// Package nrihost serves NRI to plugins for a runtime that has no NRI, or whose NRI is disabled. The NRI host has one
// Adaptation of the NRI library, and the socket to which plugins connect. It also has a gRPC server in front of the
// agent's CRI proxy. This server intercepts the CRI calls that correspond to NRI events.
//
// The host first creates a container and then adjusts it. So plugins see the container's final id and whole OCI spec.
// Until plugins have answered, the host hides the container from all CRI clients. If a plugin refuses the container,
// the host removes it. The host sends the resources that the CRI can update through the CRI proxy, like a kubelet. So
// the agent decides which of these values the container gets. The host writes all other fields of an adjustment into
// the OCI spec that the runtime stores. Some runtimes do not let the agent change the stored spec. With these runtimes,
// the host asks plugins before the creation, with a provisional id. It then puts into the CreateContainer request the
// fields of the adjustment that the CRI has.
//
// The package does not choose CPUs, and does not write kernel files. It serves NRI 0.12 (github.com/containerd/nri,
// pkg/api and pkg/adaptation) and CRI v1.
package nrihost
