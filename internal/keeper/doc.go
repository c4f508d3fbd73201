// Package keeper is the only writer of kernel files. It owns the table of desired values, with
// the cgroup, owner, start time and original of each value. It writes in an order that the
// kernel accepts, verifies the results, and restores what it changed. It decides nothing, starts
// no goroutine and does not log. Each value has an Outcome.
package keeper
