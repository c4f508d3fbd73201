// Package oracle compares the allocator and the topology manager with those of the kubelet where both do the same:
// choose n CPUs of a set, packed; merge hints; admit pods with whole CPUs. It also runs the exporter of
// node-feature-discovery, which reads the kubelet's PodResources API, with the agent's PodResources server. The package
// is in a separate module, because it needs all of Kubernetes.
package oracle
