// Package topology owns the values that describe a node: CPU sets, CPUs and their
// places, NUMA nodes. Sub-package sysfs reads them from a /sys tree, describe makes
// them from a short text. It knows nothing of pods.
package topology
