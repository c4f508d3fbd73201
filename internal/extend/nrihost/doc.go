// Package nrihost serves NRI to ordinary plugins in front of a runtime that has no NRI, or whose NRI is off. It
// owns one Adaptation of the NRI library and the socket that plugins connect to. It also owns a gRPC server before
// the CRI proxy, which holds the calls that are NRI events.
//
// The host creates a container first and then adjusts it, so that plugins see its final id and its whole OCI spec.
// Until plugins have answered, the host hides the container from every caller. If a plugin refuses the container,
// the host removes it. Resources go through the CRI proxy like a kubelet's update, so that the agent decides about
// them. The host writes all other parts into the spec that the runtime has stored. Some runtimes do not allow that.
// For these the host asks plugins before the creation, with a provisional id, and sends the parts that the CRI can
// carry with the request.
//
// The package decides nothing about CPUs, keeps no value in force and writes no kernel file. Protocol: NRI 0.12
// (github.com/containerd/nri, pkg/api and pkg/adaptation), CRI v1.
package nrihost
