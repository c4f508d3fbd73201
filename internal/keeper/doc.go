// Package keeper writes the decided values to kernel files. It owns the table of desired values, with the cgroup, the
// owner and the original value of each. It writes in an order that the kernel accepts, verifies the results, and
// restores what it changed. It decides no value, starts no goroutine and does not log: it returns an Outcome for each
// value.
package keeper
