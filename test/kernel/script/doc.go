// Package script has one script of writes to cgroup files. It runs the script on the simulated kernel of
// internal/sim/kernel or on a real one, and compares the answers. The answers of real kernels are in testdata, so the
// comparison needs no virtual machine.
//
// The script expects nothing by itself: the answers of real kernels are right. known.go lists the intended differences
// of the simulated kernel, and why.
package script
