// Package topology has the types that describe a node: CPU sets, CPUs with their cores, caches and sockets, and NUMA
// nodes. The sub-package sysfs reads a Machine from a /sys tree, and the sub-package describe makes a Machine from a
// short text. The package knows nothing about pods.
package topology
