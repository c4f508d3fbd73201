// Package churn creates and removes a thousand containers of every class on a simulated node of 256 CPUs, through the
// NRI attachment with the placement policy pools. At every write to the kernel it checks the cpusets of all containers
// against the invariants I1, I2 and I4 of ARCHITECTURE.md. TestStorm does the same on a smaller node, while calls of
// the agent on files and sockets fail.
package churn
