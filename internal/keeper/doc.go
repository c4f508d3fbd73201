// Package keeper is the only writer of kernel files. It owns the table of desired
// values: for which cgroup and owner, since when, and with which original. It
// writes in an order that the kernel accepts, verifies the results, and restores
// what it changed. It decides nothing, starts no goroutine and does not log: every
// value has an Outcome.
package keeper
