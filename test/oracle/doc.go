// Package oracle compares the allocator with the kubelet's static CPU manager where both do the same: choose n CPUs of
// a set, packed. It is a module of its own, since it needs all of Kubernetes.
package oracle
