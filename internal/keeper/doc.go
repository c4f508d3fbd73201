// Package keeper is the only writer of kernel files. It owns the table of desired values: the
// cgroup and owner of each, since when it is desired, and its original. It writes in an order
// that the kernel accepts, verifies the results, and restores what it changed. It decides
// nothing, starts no goroutine and does not log. Each value has an Outcome.
package keeper
