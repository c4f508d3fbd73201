// Package choose is the allocator of CPUs. It chooses n CPUs of a set by the topology of the machine and by
// preferences, and returns the reasons. Equal requests give equal answers. The package knows nothing about pods, pools
// and owners of CPUs: callers pass the set of CPUs from which it may choose.
//
// A choice has two steps. First, preferences narrow the set, one after another; a preference is skipped if it would
// leave too few CPUs. Then the search goes down the levels of the machine: sockets, NUMA nodes, caches, cores and
// threads. The CPUs of one socket, one NUMA node, one cache and so on are a group, and the groups inside a group are
// its parts. At each level the search continues in the best part that has enough CPUs, by the ranking in rank.go. If no
// part has enough CPUs, it takes CPUs of as few parts as possible, and prefers parts that are near to each other.
package choose
