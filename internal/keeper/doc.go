// Package keeper is the only writer of kernel files. It owns the table of what
// is desired in which cgroup, for whom and since when, and what was there
// before; it brings the kernel in line in an order the kernel accepts, checks
// what became of it, and gives back what it changed. It decides nothing, starts
// no goroutine and does not log: every value has an Outcome.
package keeper
