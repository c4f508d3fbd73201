// Package topologyaware is the placement policy that places each container in the smallest part of the node that can
// hold it: an L3 cache, a NUMA node, a die, a package, or the whole node. Containers of Guaranteed pods that request
// whole CPUs own CPUs of one part. All other containers share the CPUs of a part that no container owns. Names and
// rules are those of the policy topology-aware of containers/nri-plugins (0.14); docs/topology-aware.md lists the
// differences.
package topologyaware
