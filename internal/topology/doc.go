// Package topology has the types that describe a node: CPU sets, CPUs with their cores,
// caches and sockets, and NUMA nodes. Sub-package sysfs reads them from a /sys tree, and
// describe makes them from a short text. The package knows nothing about pods.
package topology
