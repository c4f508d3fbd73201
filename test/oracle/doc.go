// Package oracle holds the allocator against the kubelet's static CPU manager,
// where both have the same job: n CPUs out of a set, packed. It is a module of its
// own, since it needs all of Kubernetes.
package oracle
