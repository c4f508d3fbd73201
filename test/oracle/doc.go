// Package oracle compares the allocator and the topology manager with the kubelet's where both do the same: choose n
// CPUs of a set, packed; merge hints; admit pods with whole CPUs. An exporter reads the agent in the kubelet's place. It is a module of its own, since it needs all of
// Kubernetes.
package oracle
