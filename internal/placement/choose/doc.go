// Package choose is the allocator of CPUs. It chooses n CPUs of a set by the topology of the machine and by
// preferences, and returns the reasons. Equal requests give equal answers. The package knows nothing about
// pods, pools and owners of CPUs: callers pass the set of CPUs from which it may choose.
//
// A choice has two steps. First, preferences narrow the set, one after another; a preference is skipped if it
// would leave too few CPUs. Then the search goes down the levels of the machine, from sockets to threads. At
// each level it continues in the best group that has enough CPUs, by the ranking in rank.go. If no group has
// enough CPUs, it takes CPUs of as few groups as possible, and prefers groups that are near to each other.
package choose
