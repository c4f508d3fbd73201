// Package nrihost serves NRI to ordinary plugins in front of a runtime that has none, or
// whose NRI is off. It owns one Adaptation of the NRI library, the socket that plugins
// connect to, and a gRPC server before the CRI proxy that holds the calls which are NRI
// events.
//
// A container is created first and then adjusted, so that plugins see its final id and
// its whole OCI spec. Until they have answered it is hidden from every caller, and it is
// removed if one of them refuses it. Resources go through the CRI proxy like a kubelet's
// update, so that the agent decides about them; all else is written into the spec that
// the runtime has stored. Where the runtime lets nobody do that, plugins are asked before
// the creation, with a provisional id, and what the CRI can say goes with the request.
//
// It decides nothing about CPUs, keeps no value in force and writes no kernel file.
// Protocol: NRI 0.12 (github.com/containerd/nri, pkg/api and pkg/adaptation), CRI v1.
package nrihost
