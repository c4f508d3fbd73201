// Package keeper writes the agent's desired values to kernel files. It has a table of the desired values, with the
// cgroup, the owner (a container or pod) and the original of each value. It writes in an order that the kernel accepts,
// verifies the results, and later restores the originals. It decides no value, starts no goroutine and does not log: it
// returns an Outcome for each value.
package keeper
