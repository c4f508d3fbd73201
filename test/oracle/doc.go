// Package oracle compares the agent's CPU allocator and topology manager with the kubelet's CPU manager and topology
// manager. It compares what both programs do in the same way: they choose n CPUs of a set close to each other, merge
// hints, and admit pods that request whole CPUs. The package also runs the exporter of node-feature-discovery, which is
// written for the kubelet's PodResources API, with the agent's PodResources server. The package is in a separate
// module, because it needs all of Kubernetes.
package oracle
