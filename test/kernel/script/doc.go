// Package script is one script of writes to cgroup files, the means to run it
// on a kernel, the simulated one of internal/sim/kernel as well as a real one,
// and the comparison of what the two answered. The answers of real kernels are
// kept in testdata, so that no virtual machine is needed for the comparison.
//
// The script has no expectation of its own: what a kernel answers is right.
// known.go lists where the simulated kernel is meant to differ, and why.
package script
